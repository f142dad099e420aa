//! Leases: they end when nobody renews them, not before, and never come back.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Claim, Clock, Guarantee, LockKey, Loss, Mode, Phase, Reach, RenewReply, RenewRequest,
};

pub use super::late::{a_late_reply_does_not_extend_the_local_deadline, a_late_request_is_not_placed};

use super::trial::permits;
use super::{Client, Trial};
use crate::JumpingClock;

/// A holder that falls silent holds the key for its lease, and no longer.
pub async fn a_lease_that_is_not_renewed_ends(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([silent, other], key) = (trial.two().await, trial.key());
    let claim = silent.brief(&key, Mode::Exclusive);
    let grant = silent.granted(&claim).await;
    is_free_after(&trial, &other, &key, grant.lease).await;
    assert!(
        other.now() >= grant.held_from + grant.lease,
        "the key was free before the lease had ended"
    );
}

/// RenewReply within its lease, a claim lives on.
pub async fn a_renewed_claim_outlives_its_first_lease(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([holder, other], key) = (trial.two().await, trial.key());
    let claim = holder.brief(&key, Mode::Exclusive);
    let mut lease = holder.granted(&claim).await.lease;
    for _ in 0..3 {
        trial.pass(lease.mul_f64(0.6)).await;
        lease = holder.stays_alive(&claim, Phase::Granted).await.1;
    }
    is_free_after(&trial, &other, &key, lease * 2).await;
}

/// `acquire` on a granted claim restarts its lease.
pub async fn polling_a_granted_claim_restarts_its_lease(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([holder, other], key) = (trial.two().await, trial.key());
    let claim = holder.brief(&key, Mode::Exclusive);
    let first = holder.granted(&claim).await;
    trial.pass(first.lease.mul_f64(0.6)).await;
    let second = holder.granted(&claim).await;
    assert!(second.held_from >= first.held_from + first.lease.mul_f64(0.5));
    trial.pass(second.lease.mul_f64(0.6)).await;
    other.finds_busy(&key, Mode::Exclusive).await;
    holder.stays_alive(&claim, Phase::Granted).await;
}

/// A renewal gives the lease that it asks for, from the moment at which the store acts.
pub async fn a_renewal_grants_the_requested_lease(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([holder, other], key) = (trial.two().await, trial.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    let briefly = |renewal: &mut RenewRequest| renewal.lease = trial.brief();
    let (held_from, lease) = holder.stays_alive_as(&claim, Phase::Granted, briefly).await;
    assert!(lease >= trial.brief() && lease <= trial.brief() * 2, "{lease:?}");
    is_free_after(&trial, &other, &key, lease).await;
    assert!(
        other.now() >= held_from + lease,
        "the key was free before the lease had ended"
    );
}

/// Where the profile says so, a holder on another machine keeps the key while the store restarts.
pub async fn a_claim_survives_a_restart_if_the_profile_says_so(trial: Trial) {
    let (holder, key) = (trial.client().await, trial.key());
    holder.holds(&key, Mode::Exclusive).await;
    // Where the store restarts with its machine, its holders are gone too.
    let outlives_it = trial.profile().reach == Reach::Network;
    if outlives_it
        && trial.profile().offers(Guarantee::SurvivesRestart)
        && let Some(restarted) = trial.subject().restart()
    {
        restarted.await.expect("the store starts again");
    }
    trial.client().await.finds_busy(&key, Mode::Exclusive).await;
}

/// An expired claim is not renewed, also if nobody else has asked for the key, and not re-created (R7).
pub async fn an_expired_claim_is_never_renewed(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([late, other], key) = (trial.two().await, trial.key());
    let claim = expired(&trial, &late, &key, Mode::Exclusive).await;
    for phase in [Phase::Granted, Phase::Either] {
        let loss = late.is_gone(&claim, phase).await;
        assert!(matches!(loss, Loss::Expired | Loss::Missing), "{loss:?}");
    }
    other.finds_nothing(&key).await;
}

/// An expired claim is not granted again, also if nobody else has asked for the key.
pub async fn an_expired_claim_is_never_granted_again(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([late, other], key) = (trial.two().await, trial.key());
    let claim = expired(&trial, &late, &key, Mode::Exclusive).await;
    if trial.profile().remembers_ended {
        late.has_ended(&claim).await;
        assert_eq!(other.status(&key).await, None);
        trial.pass(trial.brief()).await;
        late.has_ended(&claim).await;
    }
    other.finds_free(&key, Mode::Exclusive).await;
}

/// A late release of an expired claim frees nobody who came after (R23).
pub async fn releasing_an_expired_claim_frees_no_other_claim(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([late, other], key) = (trial.two().await, trial.key());
    let claim = expired(&trial, &late, &key, Mode::Exclusive).await;
    let next = other.holds(&key, Mode::Exclusive).await;
    late.release(&claim).await.freed_nobody();
    other.stays_alive(&next, Phase::Granted).await;
}

/// RenewRequest is for the phase that it names: for another one the claim is left as it is.
pub async fn a_renewal_for_another_phase_has_no_effect(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([holder, other], key) = (trial.two().await, trial.key());
    let claim = holder.brief(&key, Mode::Exclusive);
    let grant = holder.granted(&claim).await;
    trial.pass(grant.lease.mul_f64(0.6)).await;
    assert_eq!(holder.is_gone(&claim, Phase::Waiting).await, Loss::Missing);
    is_free_after(&trial, &other, &key, grant.lease * 2).await;
}

/// One reader's renewal and release change nothing about another's lease (R27).
pub async fn one_reader_does_not_affect_anothers_lease(trial: Trial) {
    skip_if!(trial.lacks(Mode::Read).await || trial.lives_by_session().await);
    let ([silent, busy, other], key) = (trial.three().await, trial.key());
    let claim = silent.brief(&key, Mode::Read);
    let lease = silent.granted(&claim).await.lease;
    let neighbour = busy.holds(&key, Mode::Read).await;
    busy.stays_alive(&neighbour, Phase::Granted).await;
    trial.pass(lease.mul_f64(0.5)).await;
    busy.release(&neighbour).await.freed_it(&neighbour);
    silent.stays_alive(&claim, Phase::Granted).await;
    other.finds_busy(&key, Mode::Write).await;
}

/// A dead reader goes with its own lease, although other readers live and renew (R11).
pub async fn a_dead_reader_expires_while_others_renew(trial: Trial) {
    skip_if!(trial.lacks(Mode::Read).await || trial.lives_by_session().await);
    let ([dead, alive, writer], key) = (trial.three().await, trial.key());
    let neighbour = alive.holds(&key, Mode::Read).await;
    expired(&trial, &dead, &key, Mode::Read).await;
    writer.finds_busy(&key, Mode::Write).await;
    alive.release(&neighbour).await.freed_it(&neighbour);
    writer.finds_free(&key, Mode::Write).await;
}

/// The permits of dead holders are given out again, however many they were (R29).
pub async fn permits_of_dead_holders_become_free(trial: Trial) {
    const HOLDERS: u32 = 200;
    skip_if!(trial.lacks(permits(1, HOLDERS)).await || trial.lives_by_session().await);
    let ([dead, other], key) = (trial.two().await, trial.key());
    let lease = trial
        .brief()
        .max(Duration::from_secs(5))
        .min(trial.profile().limits.max_lease);
    let mut given = lease;
    for _ in 0..HOLDERS {
        let claim = dead.claim_as(&key, permits(1, HOLDERS), |claim| claim.lease = lease);
        given = dead.granted(&claim).await.lease;
    }
    other.finds_busy(&key, permits(1, HOLDERS)).await;
    trial.pass(given + trial.grace()).await;
    other.finds_free(&key, permits(HOLDERS, HOLDERS)).await;
}

/// A lease that is too short for the store is rounded up, and the grant says so.
pub async fn a_short_lease_is_rounded_up_and_reported(trial: Trial) {
    let (client, key) = (trial.client().await, trial.key());
    let least = trial.profile().limits.min_lease;
    let claim = client.claim_as(&key, Mode::Exclusive, |claim| claim.lease = least / 2);
    let grant = client.granted(&claim).await;
    assert!(grant.lease >= least, "{:?} is below {least:?}", grant.lease);
}

/// So is one that a renewal asks for: the answer says for how long, and the store keeps the claim until then.
pub async fn a_short_renewal_is_rounded_up_and_reported(trial: Trial) {
    let ([holder, other], key) = (trial.two().await, trial.key());
    let least = trial.profile().limits.min_lease;
    let claim = holder.holds(&key, Mode::Exclusive).await;
    let too_short = |renewal: &mut RenewRequest| renewal.lease = least / 2;
    let (held_from, lease) = holder.stays_alive_as(&claim, Phase::Granted, too_short).await;
    assert!(lease >= least, "{lease:?} is below {least:?}");
    trial.pass(least.mul_f64(0.75)).await;
    let rival = other.claim(&key, Mode::Exclusive);
    let answer = other.acquire(&rival).await;
    // A slow store may have answered when that was over.
    if other.now() < held_from + lease {
        assert!(matches!(answer, AcquireReply::Waiting { .. }), "{answer:?}");
    }
}

/// A renewal with `shorten_only` keeps the claim for the smaller of the lease asked for and what is left.
pub async fn a_shorten_only_renewal_never_lengthens(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let [holder, other] = trial.two().await;
    let shorten = async |claim: &Claim, lease: Duration| {
        let shorten_only = |renewal: &mut RenewRequest| (renewal.lease, renewal.shorten_only) = (lease, true);
        let renewed = holder.stays_alive_as(claim, Phase::Granted, shorten_only).await;
        renewed.1
    };
    // A placement that is delivered again restarts the lease, so in bad weather one of several claims has to show it.
    let mut shortened = false;
    for _ in 0..5 {
        let brief = holder.brief(&trial.key(), Mode::Exclusive);
        let granted = holder.granted(&brief).await.lease;
        trial.pass(granted.mul_f64(0.6)).await;
        let left = shorten(&brief, granted * 10).await;
        assert!(left <= granted, "{left:?} left of {granted:?}");
        is_free_after(&trial, &other, &brief.at.key, left).await;
        shortened |= left <= granted.mul_f64(0.5);
        if shortened {
            break;
        }
    }
    assert!(shortened, "no renewal answered what was left");
    let long = holder.holds(&trial.key(), Mode::Exclusive).await;
    let left = shorten(&long, trial.brief()).await;
    assert!(left <= trial.brief() * 2, "{left:?} of {:?}", trial.brief());
    is_free_after(&trial, &other, &long.at.key, left).await;
}

/// A waiter is told to poll no later than the moment at which the holder's lease ends.
pub async fn a_waiter_polls_by_the_end_of_the_holders_lease(trial: Trial) {
    skip_if!(trial.lives_by_session().await);
    let ([silent, other], key) = (trial.two().await, trial.key());
    let claim = silent.brief(&key, Mode::Exclusive);
    let lease = silent.granted(&claim).await.lease;
    let waiter = other.claim(&key, Mode::Exclusive);
    other.polls_within(&waiter, lease + trial.grace()).await;
    other.granted_within(&waiter, lease + trial.grace()).await;
}

/// What the client may believe ends no later than what the store shows as the lease's rest.
pub async fn the_local_deadline_is_within_the_stores_lease(trial: Trial) {
    let (client, key) = (trial.client().await, trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let before = client.now();
    let grant = client.granted(&claim).await;
    assert!(
        grant.held_from <= client.now(),
        "a lease is not held from the future"
    );
    assert!(
        grant.held_from >= before - grant.lease,
        "a lease that has ended is no grant"
    );
    if !trial.profile().inspection.remaining {
        return;
    }
    for _ in 0..3 {
        trial.pass(Duration::from_millis(50)).await;
        let (held_from, lease) = client.stays_alive(&claim, Phase::Granted).await;
        let status = client.status(&key).await.expect("a held key is shown");
        let remaining = status.holders[0].remaining.expect("the time left is known");
        assert!(
            held_from + lease <= client.now() + remaining,
            "belief outlives the lease"
        );
    }
}

/// Wherever in a call the client is interrupted, its belief ends no later than the store's lease.
///
/// The clock jumps at its k-th reading within the call, for each k: a `held_from` that is read after the store
/// has counted shows at one of them (R22).
pub async fn an_interrupted_client_never_outlives_its_lease(trial: Trial) {
    for reading in 1..=8 {
        for jump in [Duration::from_secs(3), Duration::from_secs(3_600)] {
            let clock = JumpingClock::new();
            let shared: Arc<dyn Clock> = Arc::new(clock.clone());
            let Some(client) = trial.subject().client_on(shared) else {
                return the_local_deadline_is_within_the_stores_lease(trial).await;
            };
            let client = trial.client_of(client.await.expect("the subject makes a client"));
            for renews in [false, true] {
                interrupted(&trial, &client, &clock, (reading, jump), renews).await;
            }
        }
    }
}

/// Places or renews a claim while the clock jumps. In the last moment in which its client may then believe in it,
/// another client must find the key held.
async fn interrupted(
    trial: &Trial,
    client: &Client,
    clock: &JumpingClock,
    (reading, jump): (u32, Duration),
    renews: bool,
) {
    let claim = client.brief(&trial.key(), Mode::Exclusive);
    if renews {
        client.granted(&claim).await;
    }
    let not_after = clock.manual().now() + Duration::from_secs(5);
    clock.arm(reading, jump);
    let believed = if renews {
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
    if let Some(until) = believed.filter(|until| clock.manual().now() < *until) {
        let left = until - clock.manual().now();
        clock
            .manual()
            .advance(left.saturating_sub(Duration::from_millis(2)));
        client.renamed().finds_busy(&claim.at.key, Mode::Exclusive).await;
    }
    client.withdraw(&claim).await;
}

/// The key is held at first, and free once that much time has passed.
async fn is_free_after(trial: &Trial, other: &Client, key: &LockKey, time: Duration) {
    other.finds_busy(key, Mode::Exclusive).await;
    let next = other.claim(key, Mode::Exclusive);
    other.granted_within(&next, time + trial.grace()).await;
}

/// A claim of that client whose lease has ended.
async fn expired(trial: &Trial, client: &Client, key: &LockKey, mode: Mode) -> Arc<Claim> {
    let claim = client.brief(key, mode);
    let grant = client.granted(&claim).await;
    trial.pass(grant.lease + trial.grace()).await;
    claim
}
