//! Runs the contract's conformance suite on a real ZooKeeper. Its clock cannot be moved, so time passes as it does.

mod case;

use case::{alone, shared};
use tenure_backend::{Effect, Fault, Mode, Phase, RenewReply, RenewRequest};
use tenure_testkit::suite;
use tenure_testkit::suite::{Fixture, run};

tenure_testkit::conformance!(
    shared,
    groups: [mutual, claim, lease, fifo, watch, turn, fence, successor, refuse]
);

tenure_testkit::conformance_under_chaos!(
    shared,
    groups: [mutual, claim, lease, fifo, watch, turn, fence, successor, refuse]
);

/// The numbers of ZooKeeper's changes are the tokens, and cannot be raised.
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

#[test]
fn a_claim_survives_a_restart() {
    run(
        alone,
        suite::lease::a_claim_survives_a_restart_if_the_profile_says_so,
    );
}
