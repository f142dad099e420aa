//! Many claims in one call: an answer for each, in order, and none clouded by another's.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Cause, Claim, Fault, Mode, Phase, ReleaseRequest, RenewReply, RenewRequest};

use crate::suite::client::renewal;
use crate::suite::departed::departure;
use crate::suite::{Client, Trial};

/// The longest batch that a case tries: beyond any chunk in which a store may send it.
const LONG: u32 = 1_100;

/// In a batch each renewal and each release has an answer of its own, in order.
pub async fn each_element_of_a_batch_has_its_own_reply(trial: Trial) {
    let client = trial.client().await;
    let keys = [trial.key(), trial.key(), trial.key()];
    let claims = keys.each_ref().map(|key| client.claim(key, Mode::Exclusive));
    let [alive, _, other] = &claims;
    client.granted(alive).await;
    client.granted(other).await;
    let answers = client.renew_all(renewals(&claims)).await;
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
    let answers = client.depart_all(departures(&claims)).await;
    answers[0].freed_it(alive);
    answers[1].freed_nobody();
    answers[2].freed_it(other);
    for key in &keys {
        assert_eq!(client.status(key).await, None);
    }
}

/// A batch may be as long as the profile says, beyond any chunk in which the store sends it: each element is answered
/// in its place, by what is true of its claim.
pub async fn a_batch_of_maximum_length_is_answered_in_order(trial: Trial) {
    let client = trial.client().await;
    let claims = long_batch(&trial, &client).await;
    for (at, answer) in client.renew_all(renewals(&claims)).await.iter().enumerate() {
        assert_eq!(
            matches!(answer, RenewReply::Alive { .. }),
            is_there(at),
            "answer {at} is {answer:?}"
        );
    }
    for (at, answer) in client.depart_all(departures(&claims)).await.iter().enumerate() {
        if is_there(at) {
            answer.freed_it(&claims[at]);
        } else {
            answer.freed_nobody();
        }
    }
}

/// An element that fails is a failure of its own, wherever in the batch it stands.
pub async fn a_failed_batch_element_does_not_affect_others(trial: Trial) {
    let client = trial.client().await;
    let longest = trial.profile().limits.max_lease;
    let Some(too_long) = longest.checked_add(Duration::from_secs(1)) else {
        return;
    };
    let claims = long_batch(&trial, &client).await;
    let fails = |at: usize| at % 5 == 3;
    let mut renewals = renewals(&claims);
    for (_, renewal) in renewals.iter_mut().enumerate().filter(|(at, _)| fails(*at)) {
        renewal.lease = too_long;
    }
    let answers = client.answers_to_renewals(renewals).await;
    for (at, answer) in answers.into_iter().enumerate() {
        let right = match answer {
            // A store that looks for the claim first finds none.
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
        .map(|claim| renewal(claim, Phase::Granted))
        .collect()
}

fn departures(claims: &[Arc<Claim>]) -> Vec<ReleaseRequest> {
    let released = claims.iter().map(|claim| departure(claim, Cause::Unlocked));
    released.collect()
}

/// Claims of which some hold their keys, and the others were never placed.
async fn long_batch(trial: &Trial, client: &Client) -> Vec<Arc<Claim>> {
    let length = trial.profile().limits.max_batch.get().min(LONG);
    let claims: Vec<_> = (0..length)
        .map(|_| client.claim(&trial.key(), Mode::Exclusive))
        .collect();
    for (_, claim) in claims.iter().enumerate().filter(|(at, _)| is_there(*at)) {
        client.granted(claim).await;
    }
    claims
}

/// Which claims of a long batch hold their keys: unevenly, so that no two parts of it look alike.
fn is_there(at: usize) -> bool {
    at.is_multiple_of(37) || at % 101 == 3
}
