//! The local deadline of a client, with interruptions and late messages: it counts from a time before the request is
//! sent, and a late request places nothing. Part of the group `lease`.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Clock, Grant, Instant, Mode, Phase, RenewReply};

use crate::suite::claim::a_claim_is_never_placed_after_its_not_after;
use crate::suite::{Fixture, TestClient};
use crate::{JumpingClock, Link};

/// Delay of a message: longer than the inaccuracy with which a case measures time, and shorter than a sixth of the
/// lease, because a store may abandon a renewal that takes longer.
const LATE: Duration = Duration::from_millis(120);

/// The local deadline is not after the end of the lease that the store shows.
pub async fn the_local_deadline_is_within_the_stores_lease(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let before = client.now();
    let grant = client.granted(&claim).await;
    assert!(
        grant.held_from <= client.now(),
        "`held_from` must not be in the future"
    );
    assert!(
        grant.held_from >= before - grant.lease,
        "the lease must not have ended before the call"
    );
    if !fixture.profile().inspection.remaining {
        return;
    }
    for _ in 0..3 {
        fixture.pass(Duration::from_millis(50)).await;
        let (held_from, lease) = client.stays_alive(&claim, Phase::Granted).await;
        let status = client.status(&key).await.expect("a held key is shown");
        let remaining = status.holders[0].remaining.expect("the remaining time is shown");
        assert!(
            held_from + lease <= client.now() + remaining,
            "the local deadline is after the end of the lease"
        );
    }
}

/// If a client is interrupted at any point of a call, its local deadline is still not after the end of the store's
/// lease.
///
/// The clock jumps at its k-th reading within the call, for each k. A client that reads `held_from` after the store has
/// started the lease fails for some k (R22).
pub async fn an_interrupted_client_never_outlives_its_lease(fixture: Fixture) {
    for reading in 1..=8 {
        for jump in [Duration::from_secs(3), Duration::from_secs(3_600)] {
            let clock = JumpingClock::new();
            let shared: Arc<dyn Clock> = Arc::new(clock.clone());
            let Some(client) = fixture.subject().client_on(shared) else {
                return the_local_deadline_is_within_the_stores_lease(fixture).await;
            };
            let client = fixture.client_of(client.await.expect("the subject makes a client"));
            for renews in [false, true] {
                interrupted(&fixture, &client, &clock, (reading, jump), renews).await;
            }
        }
    }
}

/// If a reply is late, the local deadline is still not after the end of the store's lease (R22).
pub async fn a_late_reply_does_not_extend_the_local_deadline(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let Some((client, link)) = fixture.slow_client().await else {
        return the_local_deadline_is_within_the_stores_lease(fixture).await;
    };
    let other = fixture.client().await;
    let claim = |key| client.short_lease(key, Mode::Exclusive);
    let [granted, renewed, inherited] = [fixture.key(), fixture.key(), fixture.key()];
    let deadline = |grant: &Grant| grant.held_from + grant.lease;

    link.delay(Duration::ZERO, LATE);
    let grant = client.granted(&claim(&granted)).await;
    is_held_until(&fixture, &other, &claim(&granted), deadline(&grant)).await;

    let held = claim(&renewed);
    client.granted(&held).await;
    let (held_from, lease) = client.stays_alive(&held, Phase::Granted).await;
    is_held_until(&fixture, &other, &held, held_from + lease).await;

    let (held, successor) = (claim(&inherited), claim(&inherited));
    client.granted(&held).await;
    let released = client.hand_over(&held, &successor).await;
    let Some(AcquireReply::Granted(grant)) = released.successor else {
        panic!("the successor must be granted: {released:?}");
    };
    is_held_until(&fixture, &other, &successor, deadline(&grant)).await;
}

/// Asserts that the store keeps the key for `claim`, which is not renewed, at least until its holder's local deadline.
async fn is_held_until(fixture: &Fixture, other: &TestClient, claim: &Claim, deadline: Instant) {
    let next = other.claim(&claim.at.key, Mode::Exclusive);
    other.granted_within(&next, claim.lease + fixture.grace()).await;
    assert!(
        other.now() >= deadline,
        "the key was free before the local deadline of its holder"
    );
}

/// A request that arrives after its `not_after` places nothing: by then the client may have withdrawn the claim over
/// another connection (R4, R25).
pub async fn a_late_request_is_not_placed(fixture: Fixture) {
    let Some((client, link)) = fixture.slow_client().await else {
        return a_claim_is_never_placed_after_its_not_after(fixture).await;
    };
    let ([other, holder], [alone, inherited]) = (fixture.two().await, [fixture.key(), fixture.key()]);
    let held = client.holds(&inherited, Mode::Exclusive).await;
    let soon = || client.now() + LATE / 4;

    link.delay(LATE, Duration::ZERO);
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
    let released = client.hand_over_by(&held, &successor, soon()).await;
    assert!(
        matches!(released.successor, Some(AcquireReply::TooLate)),
        "{released:?}"
    );
    assert_eq!(
        other.status(&inherited).await,
        None,
        "the release took effect all the same"
    );
}

/// Places or renews a claim while the clock jumps. Asserts that another client finds the key held shortly before the
/// resulting local deadline.
async fn interrupted(
    fixture: &Fixture,
    client: &TestClient,
    clock: &JumpingClock,
    (reading, jump): (u32, Duration),
    renews: bool,
) {
    let claim = client.short_lease(&fixture.key(), Mode::Exclusive);
    if renews {
        client.granted(&claim).await;
    }
    let not_after = clock.manual().now() + Duration::from_secs(5);
    clock.arm(reading, jump);
    let deadline = if renews {
        match client.renew(&claim).await {
            RenewReply::Alive { held_from, lease } => Some(held_from + lease),
            RenewReply::Gone(_) | RenewReply::Unknown(_) => None,
        }
    } else {
        match client.acquire_by(&claim, not_after).await {
            Ok(AcquireReply::Granted(grant)) => Some(grant.held_from + grant.lease),
            _ => None,
        }
    };
    clock.disarm();
    if let Some(until) = deadline.filter(|until| clock.manual().now() < *until) {
        let left = until - clock.manual().now();
        clock
            .manual()
            .advance(left.saturating_sub(Duration::from_millis(2)));
        client
            .with_new_id()
            .finds_busy(&claim.at.key, Mode::Exclusive)
            .await;
    }
    client.withdraw(&claim).await;
}

impl Fixture {
    /// Creates a client whose messages can be delayed, if the subject supports that.
    async fn slow_client(&self) -> Option<(TestClient, Arc<dyn Link>)> {
        let slow_client = self
            .subject()
            .slow_client()?
            .await
            .expect("the subject makes a client");
        Some((self.client_of(slow_client.backend), slow_client.link))
    }
}
