//! Tokens from the counter of Redisson's RFencedLock, with `?fencing=redisson`. Plain Redis commands play Java.

use crate::fixture::*;
use tenure_backend::{Claim, Mode};
use tenure_testkit::suite::TestClient;

tenure_testkit::conformance!(fenced, groups: [fence, successor]);
tenure_testkit::agrees_with_the_model!(fenced, walks: 20);

/// Acquires a claim. Returns the value of the lock's counter, which is the claim's last token.
async fn grant(fixture: &Fixture, client: &TestClient, claim: &std::sync::Arc<Claim>) -> i64 {
    let run = client.granted(claim).await.tokens.expect("tokens");
    let counter = fixture.number(&["GET", &tagged("redisson_lock_token", &claim.at.key)]);
    assert_eq!(counter.unsigned_abs(), run.last().get());
    counter
}

/// Java's `lockAndGetToken` increments the counter by one for each lock.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_rfencedlocks_rise_together() {
    let (fixture, client, key) = Fixture::one_on(Server::fenced()).await;
    let counter = tagged("redisson_lock_token", &key);
    let mut last = 0;
    for mode in [Mode::Exclusive, Mode::Write, Mode::Exclusive] {
        let claim = client.claim(&key, mode);
        let token = grant(&fixture, &client, &claim).await;
        assert!(token > last, "{token} after {last}");
        client.release(&claim).await.freed_it(&claim);
        last = fixture.number(&["INCR", &counter]);
        assert_eq!(last, token + 1);
    }
    // Java's tokens may be ahead of the server's clock.
    let ahead = last + 3_600_000_000;
    fixture.command(&["SET", &counter, &ahead.to_string()]);
    let claim = client.claim(&key, Mode::Exclusive);
    assert_eq!(grant(&fixture, &client, &claim).await, ahead + 1);
    assert!(!fixture.exists("tenure_tokens"), "{:?}", fixture.keys());
}

/// A renewal that raises tokens raises the counter of its own lock. After the releases, only the counters and the
/// client's record stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_raise_lifts_only_the_counter_of_its_lock() {
    let fixture = Fixture::on(Server::fenced()).await;
    let client = fixture.store.client().await;
    let [one, other] = [fixture.store.key(), fixture.store.key()];
    let claims = [
        client.holds(&one, Mode::Exclusive).await,
        client.holds(&other, Mode::Exclusive).await,
    ];
    let counters = [&one, &other].map(|key| tagged("redisson_lock_token", key));
    let before = [&counters[0], &counters[1]].map(|counter| fixture.number(&["GET", counter]));
    let raised = tenure_backend::FencingToken::new(before[0].unsigned_abs() + 1_000_000).expect("a token");
    let raise = tenure_backend::TokenRange::new(raised, std::num::NonZeroU32::MIN);
    client
        .stays_alive_as(&claims[0], tenure_backend::Phase::Granted, |renewal| {
            renewal.raise = raise
        })
        .await;
    assert_eq!(
        fixture.number(&["GET", &counters[0]]).unsigned_abs(),
        raised.get()
    );
    assert_eq!(fixture.number(&["GET", &counters[1]]), before[1]);
    for claim in &claims {
        client.release(claim).await.freed_it(claim);
    }
    let known = |key: &String| key.starts_with("tenure_client:");
    let mut rest: Vec<String> = fixture.keys().into_iter().filter(|key| !known(key)).collect();
    rest.sort();
    assert_eq!(rest, counters);
}
