//! Requests and answers that come late: belief counts from the sending, and a placement has its time.
//! Part of the group `lease`.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Grant, Instant, Mode, Phase};

use super::lease::the_local_deadline_is_within_the_stores_lease;
use super::{Client, Trial};
use crate::Door;

/// How long something is on its way: longer than a case may misjudge a moment, and shorter than a sixth of its lease, after
/// which a store gives a renewal up.
const LATE: Duration = Duration::from_millis(120);

/// An answer that was long on its way shortens what is left to believe, and never lengthens it: the store has ended the
/// lease no earlier than belief ends (R22).
pub async fn a_late_reply_does_not_extend_the_local_deadline(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let Some((client, door)) = trial.slow().await else {
        return the_local_deadline_is_within_the_stores_lease(trial).await;
    };
    let other = trial.client().await;
    let claim = |key| client.brief(key, Mode::Exclusive);
    let [granted, renewed, inherited] = [trial.key(), trial.key(), trial.key()];
    let believed_until = |grant: &Grant| grant.held_from + grant.lease;

    door.delay(Duration::ZERO, LATE);
    let grant = client.granted(&claim(&granted)).await;
    outlives(&trial, &other, &claim(&granted), believed_until(&grant)).await;

    let held = claim(&renewed);
    client.granted(&held).await;
    let (held_from, lease) = client.stays_alive(&held, Phase::Granted).await;
    outlives(&trial, &other, &held, held_from + lease).await;

    let (held, successor) = (claim(&inherited), claim(&inherited));
    client.granted(&held).await;
    let departed = client.hand_over(&held, &successor).await;
    let Some(AcquireReply::Granted(grant)) = departed.successor else {
        panic!("nobody else waits: {departed:?}");
    };
    outlives(&trial, &other, &successor, believed_until(&grant)).await;
}

/// The store keeps the key for a claim that nobody renews at least until its holder believes no more.
async fn outlives(trial: &Trial, other: &Client, claim: &Claim, believed_until: Instant) {
    let next = other.claim(&claim.at.key, Mode::Exclusive);
    other.granted_within(&next, claim.lease + trial.grace()).await;
    assert!(
        other.now() >= believed_until,
        "the key was free while its holder believed in it"
    );
}

/// A request that was on its way until after its `not_after` places nothing: it could be one whose client has given it up
/// and withdrawn it by another way (R4, R25).
pub async fn a_late_request_is_not_placed(trial: Trial) {
    let Some((client, door)) = trial.slow().await else {
        return crate::suite::claim::a_claim_is_never_placed_after_its_not_after(trial).await;
    };
    let ([other, holder], [alone, inherited]) = (trial.two().await, [trial.key(), trial.key()]);
    let held = client.holds(&inherited, Mode::Exclusive).await;
    let soon = || client.now() + LATE / 4;

    door.delay(LATE, Duration::ZERO);
    let claim = client.claim(&alone, Mode::Exclusive);
    let answer = client.polled_by(&claim, soon()).await;
    assert!(matches!(answer, AcquireReply::TooLate), "{answer:?}");
    assert_eq!(
        other.status(&alone).await,
        None,
        "a late request leaves nothing behind"
    );
    holder.finds_free(&alone, Mode::Exclusive).await;

    let successor = client.claim(&inherited, Mode::Exclusive);
    let departed = client.hand_over_by(&held, &successor, soon()).await;
    assert!(
        matches!(departed.successor, Some(AcquireReply::TooLate)),
        "{departed:?}"
    );
    assert_eq!(
        other.status(&inherited).await,
        None,
        "the release took effect all the same"
    );
}

impl Trial {
    /// A client behind a door that can be made slow, if the subject has one.
    async fn slow(&self) -> Option<(Client, Arc<dyn Door>)> {
        let slow = self.subject().slow()?.await.expect("the subject makes a client");
        Some((self.client_of(slow.backend), slow.door))
    }
}
