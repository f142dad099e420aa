//! Runs the contract's conformance suite on a real ZooKeeper. Its clock cannot be moved, so time passes as it does.

mod case;

use case::{alone, shared};
use tenure_backend::{Effect, Fault, Mode, Phase, RenewReply, RenewRequest};
use tenure_testkit::suite;
use tenure_testkit::suite::{Fixture, run};

tenure_testkit::conformance!(
    shared,
    groups: [mutual, claim, lease, fifo, watch, turn, successor, refuse]
);

tenure_testkit::conformance_under_chaos!(
    shared,
    groups: [mutual, claim, lease, fifo, watch, turn, successor, refuse]
);

/// The cases of the group that do not raise tokens.
mod fence {
    use super::*;

    #[test]
    fn grants_have_tokens_if_the_profile_says_so() {
        run(shared, suite::fence::grants_have_tokens_if_the_profile_says_so);
    }

    #[test]
    fn tokens_rise_over_release() {
        run(shared, suite::fence::tokens_rise_over_release);
    }

    #[test]
    fn tokens_rise_over_expiry() {
        run(shared, suite::fence::tokens_rise_over_expiry);
    }

    #[test]
    fn tokens_rise_over_eviction() {
        run(shared, suite::fence::tokens_rise_over_eviction);
    }

    #[test]
    fn tokens_rise_over_a_restart() {
        run(alone, suite::fence::tokens_rise_over_a_restart);
    }

    #[test]
    fn tokens_rise_from_readers_to_writers_and_back() {
        run(shared, suite::fence::tokens_rise_from_readers_to_writers_and_back);
    }

    #[test]
    fn a_grant_reserves_the_requested_token_range() {
        run(shared, suite::fence::a_grant_reserves_the_requested_token_range);
    }

    /// The numbers of changes cannot be raised.
    #[test]
    fn a_raise_is_refused_without_effect() {
        run(shared, async |fixture: Fixture| {
            let (client, key) = (fixture.client().await, fixture.key());
            let claim = client.claim(&key, Mode::Exclusive);
            let tokens = client.granted(&claim).await.tokens;
            let mut renewal = RenewRequest::of(&claim);
            renewal.raise = tokens;
            match client.renewal_replies(vec![renewal]).await.pop() {
                Some(RenewReply::Unknown(error)) => assert_eq!(
                    (error.fault(), error.effect()),
                    (Fault::Unsupported, Effect::None)
                ),
                other => panic!("a raise must be refused, but is answered {other:?}"),
            }
            client.stays_alive(&claim, Phase::Granted).await;
        });
    }
}

#[test]
fn a_claim_survives_a_restart() {
    run(
        alone,
        suite::lease::a_claim_survives_a_restart_if_the_profile_says_so,
    );
}
