//! Leases: a lease without renewals ends on time, not earlier, and an expired claim never comes back.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Claim, Fairness, Guarantee, HolderId, LockKey, Loss, Mode, Phase, Reach, RenewRequest,
};

use crate::suite::{Fixture, TestClient, permits};

/// A holder that does not renew keeps the key until its lease ends, and no longer.
pub async fn a_lease_that_is_not_renewed_ends(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([silent, other], key) = (fixture.two().await, fixture.key());
    let claim = silent.short_lease(&key, Mode::Exclusive);
    let grant = silent.granted(&claim).await;
    is_free_after(&fixture, &other, &key, grant.lease).await;
    assert!(
        other.now() >= grant.held_from + grant.lease,
        "the key was free before the lease had ended"
    );
}

/// A claim that is renewed within its lease stays alive.
pub async fn a_renewed_claim_outlives_its_first_lease(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.short_lease(&key, Mode::Exclusive);
    let mut lease = holder.granted(&claim).await.lease;
    for _ in 0..3 {
        fixture.pass(lease.mul_f64(0.6)).await;
        lease = holder.stays_alive(&claim, Phase::Granted).await.1;
    }
    is_free_after(&fixture, &other, &key, lease * 2).await;
}

/// Polling a granted claim restarts its lease.
pub async fn polling_a_granted_claim_restarts_its_lease(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.short_lease(&key, Mode::Exclusive);
    let first = holder.granted(&claim).await;
    fixture.pass(first.lease.mul_f64(0.6)).await;
    let second = holder.granted(&claim).await;
    assert!(second.held_from >= first.held_from + first.lease.mul_f64(0.5));
    fixture.pass(second.lease.mul_f64(0.6)).await;
    other.finds_busy(&key, Mode::Exclusive).await;
    holder.stays_alive(&claim, Phase::Granted).await;
}

/// A renewal grants the requested lease, counted from the time at which the store acts.
pub async fn a_renewal_grants_the_requested_lease(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    let briefly = |renewal: &mut RenewRequest| renewal.lease = fixture.short_lease();
    let (held_from, lease) = holder.stays_alive_as(&claim, Phase::Granted, briefly).await;
    assert!(
        lease >= fixture.short_lease() && lease <= fixture.short_lease() * 2,
        "{lease:?}"
    );
    is_free_after(&fixture, &other, &key, lease).await;
    assert!(
        other.now() >= held_from + lease,
        "the key was free before the lease had ended"
    );
}

/// A holder on another machine keeps the key across a restart of the store, if the profile promises that.
pub async fn a_claim_survives_a_restart_if_the_profile_says_so(fixture: Fixture) {
    let (holder, key) = (fixture.client().await, fixture.key());
    holder.holds(&key, Mode::Exclusive).await;
    // A store within one machine restarts only with the machine, and so with its holders.
    let outlives_it = fixture.profile().reach == Reach::Network;
    if outlives_it
        && fixture.profile().offers(Guarantee::SurvivesRestart)
        && let Some(restarted) = fixture.subject().restart()
    {
        restarted.await.expect("the store starts again");
    }
    fixture.client().await.finds_busy(&key, Mode::Exclusive).await;
}

/// A renewal does not revive an expired claim, even if no other client wants the key (R7).
pub async fn an_expired_claim_is_never_renewed(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([late, other], key) = (fixture.two().await, fixture.key());
    let claim = expired(&fixture, &late, &key, Mode::Exclusive).await;
    for phase in [Phase::Granted, Phase::Either] {
        let loss = late.is_gone(&claim, phase).await;
        assert!(matches!(loss, Loss::Expired | Loss::Missing), "{loss:?}");
    }
    other.finds_nothing(&key).await;
}

/// An expired claim is not granted again, even if no other client wants the key.
pub async fn an_expired_claim_is_never_granted_again(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([late, other], key) = (fixture.two().await, fixture.key());
    let claim = expired(&fixture, &late, &key, Mode::Exclusive).await;
    if fixture.profile().remembers_ended {
        late.has_ended(&claim).await;
        assert_eq!(other.status(&key).await, None);
        fixture.pass(fixture.short_lease()).await;
        late.has_ended(&claim).await;
    }
    other.finds_free(&key, Mode::Exclusive).await;
}

/// A late release of an expired claim does not free the next holder's claim (R23).
pub async fn releasing_an_expired_claim_frees_no_other_claim(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([late, other], key) = (fixture.two().await, fixture.key());
    let claim = expired(&fixture, &late, &key, Mode::Exclusive).await;
    let next = other.holds(&key, Mode::Exclusive).await;
    // A slow member of a quorum may have placed the claim after its lease had ended elsewhere: then its release frees it.
    let freed = late.release(&claim).await.freed;
    assert!(!freed.contains(&HolderId::Claim(next.at.id)), "{freed:?}");
    other.stays_alive(&next, Phase::Granted).await;
}

/// A renewal for another phase than that of the claim does not extend the lease.
pub async fn a_renewal_for_another_phase_has_no_effect(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.short_lease(&key, Mode::Exclusive);
    let grant = holder.granted(&claim).await;
    fixture.pass(grant.lease.mul_f64(0.6)).await;
    assert_eq!(holder.is_gone(&claim, Phase::Waiting).await, Loss::Missing);
    is_free_after(&fixture, &other, &key, grant.lease * 2).await;
}

/// The renewals and the release of one reader do not affect another reader's lease (R27).
pub async fn one_reader_does_not_affect_anothers_lease(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Read).await || fixture.lives_by_session().await);
    let ([silent, busy, other], key) = (fixture.three().await, fixture.key());
    let claim = silent.short_lease(&key, Mode::Read);
    let lease = silent.granted(&claim).await.lease;
    let neighbour = busy.holds(&key, Mode::Read).await;
    busy.stays_alive(&neighbour, Phase::Granted).await;
    fixture.pass(lease.mul_f64(0.5)).await;
    busy.release(&neighbour).await.freed_it(&neighbour);
    silent.stays_alive(&claim, Phase::Granted).await;
    other.finds_busy(&key, Mode::Write).await;
}

/// A dead reader expires with its own lease, although other readers renew theirs (R11).
pub async fn a_dead_reader_expires_while_others_renew(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Read).await || fixture.lives_by_session().await);
    let ([dead, alive, writer], key) = (fixture.three().await, fixture.key());
    let neighbour = alive.holds(&key, Mode::Read).await;
    expired(&fixture, &dead, &key, Mode::Read).await;
    writer.finds_busy(&key, Mode::Write).await;
    alive.release(&neighbour).await.freed_it(&neighbour);
    writer.finds_free(&key, Mode::Write).await;
}

/// The permits of many dead holders become free again (R29).
pub async fn permits_of_dead_holders_become_free(fixture: Fixture) {
    const HOLDERS: u32 = 200;
    skip_if!(fixture.refuses_mode(permits(1, HOLDERS)).await || fixture.lives_by_session().await);
    let ([dead, other], key) = (fixture.two().await, fixture.key());
    // Long enough for a server to grant all of them before the first one ends.
    let lease = fixture
        .short_lease()
        .max(Duration::from_secs(20))
        .min(fixture.profile().limits.max_lease);
    let (began, mut given) = (dead.now(), lease);
    for _ in 0..HOLDERS {
        let claim = dead.claim_as(&key, permits(1, HOLDERS), |claim| claim.lease = lease);
        given = dead.granted(&claim).await.lease;
    }
    // A busy machine may need longer.
    if dead.now() < began + lease / 2 {
        other.finds_busy(&key, permits(1, HOLDERS)).await;
    }
    fixture.pass(given + fixture.grace()).await;
    other.finds_free(&key, permits(HOLDERS, HOLDERS)).await;
}

/// A lease below the store's minimum is rounded up, and the grant reports the actual lease.
pub async fn a_short_lease_is_rounded_up_and_reported(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let least = fixture.profile().limits.min_lease;
    // A claim that is asked for again after a lost reply may have ended: its lease is as short as the store permits.
    for _ in 0..20 {
        let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.lease = least / 2);
        match client.acquire(&claim).await {
            AcquireReply::Granted(grant) => {
                assert!(grant.lease >= least, "{:?} is below {least:?}", grant.lease);
                return;
            }
            AcquireReply::Ended => {}
            other => panic!("{:?} must be granted or have ended, but is {other:?}", claim.at),
        }
    }
    panic!("twenty claims have ended before they were answered");
}

/// A renewal below the store's minimum lease gets the minimum. The reply reports the minimum, and the store keeps the
/// claim for that time.
pub async fn a_short_renewal_is_rounded_up_and_reported(fixture: Fixture) {
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let least = fixture.profile().limits.min_lease;
    let claim = holder.holds(&key, Mode::Exclusive).await;
    let too_short = |renewal: &mut RenewRequest| renewal.lease = least / 2;
    let (held_from, lease) = holder.stays_alive_as(&claim, Phase::Granted, too_short).await;
    assert!(lease >= least, "{lease:?} is below {least:?}");
    fixture.pass(least.mul_f64(0.75)).await;
    let rival = other.claim(&key, Mode::Exclusive);
    let answer = other.acquire(&rival).await;
    // The key may be free if the store answered after the lease had ended.
    if other.now() < held_from + lease {
        assert!(matches!(answer, AcquireReply::Waiting { .. }), "{answer:?}");
    }
}

/// A renewal with `shorten_only` sets the lease to the smaller of the requested and the remaining time.
pub async fn a_shorten_only_renewal_never_lengthens(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let [holder, other] = fixture.two().await;
    let shorten = async |claim: &Claim, lease: Duration| {
        let shorten_only = |renewal: &mut RenewRequest| (renewal.lease, renewal.shorten_only) = (lease, true);
        let renewed = holder.stays_alive_as(claim, Phase::Granted, shorten_only).await;
        renewed.1
    };
    // Under chaos, a repeated `acquire` may restart the lease before the renewal. So it is enough if one of five
    // renewals returns the remaining time.
    let mut shortened = false;
    for _ in 0..5 {
        let short_lease = holder.short_lease(&fixture.key(), Mode::Exclusive);
        let granted = holder.granted(&short_lease).await.lease;
        fixture.pass(granted.mul_f64(0.6)).await;
        let left = shorten(&short_lease, granted * 10).await;
        assert!(left <= granted, "{left:?} left of {granted:?}");
        is_free_after(&fixture, &other, &short_lease.at.key, left).await;
        shortened |= left <= granted.mul_f64(0.5);
        if shortened {
            break;
        }
    }
    assert!(shortened, "no renewal returned the remaining time");
    let long_lease = holder.holds(&fixture.key(), Mode::Exclusive).await;
    let left = shorten(&long_lease, fixture.short_lease()).await;
    assert!(
        left <= fixture.short_lease() * 2,
        "{left:?} of {:?}",
        fixture.short_lease()
    );
    is_free_after(&fixture, &other, &long_lease.at.key, left).await;
}

/// A waiter's `poll_after` is at most the holder's lease plus the fixture's grace.
pub async fn a_waiter_polls_by_the_end_of_the_holders_lease(fixture: Fixture) {
    skip_if!(fixture.lives_by_session().await);
    let ([silent, other], key) = (fixture.two().await, fixture.key());
    let claim = silent.short_lease(&key, Mode::Exclusive);
    let lease = silent.granted(&claim).await.lease;
    let waiter = other.claim(&key, Mode::Exclusive);
    other.polls_within(&waiter, lease + fixture.grace()).await;
    other.granted_within(&waiter, lease + fixture.grace()).await;
}

/// A waiter may sleep until the end of the lease that it found. A renewal that makes this lease shorter, as for `at_least`
/// before its process ends, must not leave the waiter asleep.
pub async fn a_waiter_that_sleeps_learns_of_a_shortened_lease(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Unfair).await || fixture.lives_by_session().await);
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    let sleeper = other.sleeps(&key, Mode::Exclusive).await;
    let briefly = |renewal: &mut RenewRequest| renewal.lease = fixture.short_lease();
    let (_, lease) = holder.stays_alive_as(&claim, Phase::Granted, briefly).await;
    sleeper.granted_within(lease + fixture.grace()).await;
}

/// Asserts that the key is held now, and becomes free within `time` plus the fixture's grace.
async fn is_free_after(fixture: &Fixture, other: &TestClient, key: &LockKey, time: Duration) {
    other.finds_busy(key, Mode::Exclusive).await;
    let next = other.claim(key, Mode::Exclusive);
    other.granted_within(&next, time + fixture.grace()).await;
}

/// Creates a claim and lets its lease end.
async fn expired(fixture: &Fixture, client: &TestClient, key: &LockKey, mode: Mode) -> Arc<Claim> {
    let claim = client.short_lease(key, mode);
    let grant = client.granted(&claim).await;
    fixture.pass(grant.lease + fixture.grace()).await;
    claim
}
