//! Batches: each element gets its own reply, in order, and no failure affects another element.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Cause, Claim, Fault, Mode, Phase, ReleaseRequest, RenewReply, RenewRequest};

use crate::suite::{Fixture, TestClient, release_request, renew_request};

/// Longest batch that a case sends. It is longer than the chunks into which stores split a batch.
const LONG: u32 = 1_100;

/// Each renewal and each release of a batch has its own reply, in order.
pub async fn each_element_of_a_batch_has_its_own_reply(fixture: Fixture) {
    let client = fixture.client().await;
    let keys = [fixture.key(), fixture.key(), fixture.key()];
    let claims = keys.each_ref().map(|key| client.claim(key, Mode::Exclusive));
    let [alive, _, other] = &claims;
    client.granted(alive).await;
    client.granted(other).await;
    let answers = client.send_renewals(renewals(&claims)).await;
    assert!(
        matches!(
            answers[..],
            [
                RenewReply::Alive { .. },
                RenewReply::Gone(_),
                RenewReply::Alive { .. }
            ]
        ),
        "{answers:?}"
    );
    let answers = client.send_releases(releases(&claims)).await;
    answers[0].freed_it(alive);
    answers[1].freed_nothing();
    answers[2].freed_it(other);
    for key in &keys {
        assert_eq!(client.status(key).await, None);
    }
}

/// A batch may be as long as the profile's `max_batch`. Each element gets the right reply at its own position, even if
/// the store splits the batch into chunks.
pub async fn a_batch_of_maximum_length_is_answered_in_order(fixture: Fixture) {
    let client = fixture.client().await;
    let claims = long_batch(&fixture, &client).await;
    for (at, answer) in client.send_renewals(renewals(&claims)).await.iter().enumerate() {
        assert_eq!(
            matches!(answer, RenewReply::Alive { .. }),
            is_there(at),
            "answer {at} is {answer:?}"
        );
    }
    for (at, answer) in client.send_releases(releases(&claims)).await.iter().enumerate() {
        if is_there(at) {
            answer.freed_it(&claims[at]);
        } else {
            answer.freed_nothing();
        }
    }
}

/// If one element fails, at any position, the others get the same replies as without it.
pub async fn a_failed_batch_element_does_not_affect_others(fixture: Fixture) {
    let client = fixture.client().await;
    let longest = fixture.profile().limits.max_lease;
    let Some(too_long) = longest.checked_add(Duration::from_secs(1)) else {
        return;
    };
    let claims = long_batch(&fixture, &client).await;
    let fails = |at: usize| at % 5 == 3;
    let mut renewals = renewals(&claims);
    for (_, renewal) in renewals.iter_mut().enumerate().filter(|(at, _)| fails(*at)) {
        renewal.lease = too_long;
    }
    let answers = client.renewal_replies(renewals).await;
    for (at, answer) in answers.into_iter().enumerate() {
        let right = match answer {
            // If the claim of a failing renewal is absent, a store may reply `Gone` instead of the error.
            RenewReply::Unknown(ref error) => fails(at) && error.fault() == Fault::Limit,
            RenewReply::Alive { .. } => is_there(at) && !fails(at),
            RenewReply::Gone(_) => !is_there(at),
        };
        assert!(right, "answer {at} is {answer:?}");
    }
}

fn renewals(claims: &[Arc<Claim>]) -> Vec<RenewRequest> {
    claims
        .iter()
        .map(|claim| renew_request(claim, Phase::Granted))
        .collect()
}

fn releases(claims: &[Arc<Claim>]) -> Vec<ReleaseRequest> {
    let released = claims.iter().map(|claim| release_request(claim, Cause::Unlocked));
    released.collect()
}

/// Claims for a long batch: some hold their keys, the others were never placed.
async fn long_batch(fixture: &Fixture, client: &TestClient) -> Vec<Arc<Claim>> {
    let length = fixture.profile().limits.max_batch.get().min(LONG);
    let claims: Vec<_> = (0..length)
        .map(|_| client.claim(&fixture.key(), Mode::Exclusive))
        .collect();
    for (_, claim) in claims.iter().enumerate().filter(|(at, _)| is_there(*at)) {
        client.granted(claim).await;
    }
    claims
}

/// Returns whether this claim of a long batch holds its key. The pattern is irregular, so that shuffled replies show.
fn is_there(at: usize) -> bool {
    at.is_multiple_of(37) || at % 101 == 3
}
