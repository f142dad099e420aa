//! Eviction: somebody else takes a claim away, and its holder learns why.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Cause, Fairness, HANDOVER_WINDOW, HolderId, Loss, Mode, Phase, ReleaseTarget};

use crate::suite::Trial;
use crate::suite::departed::eviction;

/// An evicted claim is gone at once, is told who took it, and never comes back.
pub async fn an_evicted_claim_is_gone_and_learns_the_evictor(trial: Trial) {
    let ([holder, operator, other], key) = (trial.three().await, trial.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    other.finds_free(&key, Mode::Exclusive).await;
    let loss = holder.is_gone(&claim, Phase::Granted).await;
    if trial.profile().remembers_ended {
        holder.has_ended(&claim).await;
        assert_eq!(loss, by_alice());
    }
    other.finds_free(&key, Mode::Exclusive).await;
}

/// For as long as its lease would have lasted an evicted holder can learn why it is gone.
pub async fn an_eviction_is_remembered_for_the_claims_lease(trial: Trial) {
    if !trial.profile().remembers_ended {
        return an_evicted_claim_is_gone_and_learns_the_evictor(trial).await;
    }
    let ([holder, operator], key) = (trial.two().await, trial.key());
    let claim = holder.brief(&key, Mode::Exclusive);
    let grant = holder.granted(&claim).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    trial.pass(grant.lease.mul_f64(0.8)).await;
    assert_eq!(holder.is_gone(&claim, Phase::Granted).await, by_alice());
}

/// A release that its client sends afterwards does not change what an evicted claim is told.
pub async fn a_late_release_does_not_hide_an_eviction(trial: Trial) {
    if !trial.profile().remembers_ended {
        return an_evicted_claim_is_gone_and_learns_the_evictor(trial).await;
    }
    let ([holder, operator], key) = (trial.two().await, trial.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    for _ in 0..2 {
        holder.withdraw(&claim).await.freed_nobody();
        assert_eq!(holder.is_gone(&claim, Phase::Granted).await, by_alice());
    }
}

/// The eviction of a claim leaves its neighbours alone.
pub async fn an_eviction_ends_only_the_named_claim(trial: Trial) {
    skip_if!(trial.lacks(Mode::Read).await);
    let ([a, b], key) = (trial.two().await, trial.key());
    let evicted = a.holds(&key, Mode::Read).await;
    let stays = b.holds(&key, Mode::Read).await;
    b.evict(&evicted, "bob").await.freed_it(&evicted);
    b.stays_alive(&stays, Phase::Granted).await;
    a.finds_busy(&key, Mode::Write).await;
}

/// Everybody who holds the key goes, and nobody else.
pub async fn all_holders_of_a_key_can_be_evicted_at_once(trial: Trial) {
    let mode = if trial.lacks(Mode::Read).await {
        Mode::Exclusive
    } else {
        Mode::Read
    };
    let ([a, b, operator], [key, elsewhere]) = (trial.three().await, [trial.key(), trial.key()]);
    let mut holders = vec![a.holds(&key, mode).await];
    if mode == Mode::Read {
        holders.push(b.holds(&key, mode).await);
    }
    let stays = b.holds(&elsewhere, Mode::Exclusive).await;
    let departed = operator
        .depart(eviction(ReleaseTarget::All(key.clone()), Duration::ZERO))
        .await;
    let freed: BTreeSet<String> = departed.freed.iter().map(HolderId::to_string).collect();
    let expected: BTreeSet<String> = holders.iter().map(|claim| claim.at.id.to_string()).collect();
    assert!(
        freed == expected || departed.repeated && freed.is_empty(),
        "{freed:?}"
    );
    for holder in &holders {
        a.is_gone(holder, Phase::Granted).await;
    }
    operator.finds_free(&key, mode).await;
    b.stays_alive(&stays, Phase::Granted).await;
}

/// Waiters stay in the queue when the holders are evicted, and the first of them is next.
pub async fn waiters_stay_when_all_holders_are_evicted(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let ([a, b, operator], key) = (trial.three().await, trial.key());
    a.granted(&a.fair(&key, Mode::Exclusive)).await;
    let waiting = b.queues(&key, Mode::Exclusive).await;
    operator
        .depart(eviction(ReleaseTarget::All(key.clone()), Duration::ZERO))
        .await;
    b.granted_soon(&waiting).await;
}

/// An evicted waiter has ended, and the queue goes on without it.
pub async fn a_waiter_can_be_evicted_from_the_queue(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let ([a, b, c], key) = (trial.three().await, trial.key());
    let held = a.fair(&key, Mode::Exclusive);
    a.granted(&held).await;
    let evicted = b.queues(&key, Mode::Exclusive).await;
    let next = c.queues(&key, Mode::Exclusive).await;
    a.evict(&evicted, "alice").await.freed_it(&evicted);
    if trial.profile().remembers_ended {
        b.has_ended(&evicted).await;
    }
    a.release(&held).await.freed_it(&held);
    c.granted_soon(&next).await;
}

/// After an eviction the key admits nobody for as long as the evicted client may still pass the claim on.
pub async fn an_eviction_starts_a_cooldown(trial: Trial) {
    let ([holder, operator, other], key) = (trial.three().await, trial.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    let evicted = operator.now();
    let mut by_nobody = eviction(ReleaseTarget::Claim(claim.at.clone()), HANDOVER_WINDOW);
    by_nobody.cause = Cause::Evicted { by: None };
    operator.depart(by_nobody).await.freed_it(&claim);
    let next = other.claim(&key, Mode::Exclusive);
    other.granted_soon(&next).await;
    let passes_on = trial.profile().limits.max_grants.get() > 1;
    let barred = other.now() - evicted;
    assert!(
        !passes_on || barred >= HANDOVER_WINDOW,
        "granted {barred:?} after an eviction"
    );
}

/// A hold that is not there is evicted without effect.
pub async fn evicting_an_absent_holder_has_no_effect(trial: Trial) {
    let ([a, b], key) = (trial.two().await, trial.key());
    let held = a.holds(&key, Mode::Exclusive).await;
    let stranger = ReleaseTarget::Foreign {
        key: key.clone(),
        id: Arc::from("no such holder"),
    };
    for who in [stranger, ReleaseTarget::All(trial.key())] {
        b.depart(eviction(who, Duration::ZERO)).await.freed_nobody();
    }
    a.stays_alive(&held, Phase::Granted).await;
    b.finds_busy(&key, Mode::Exclusive).await;
}

fn by_alice() -> Loss {
    let by = Some(Arc::from("alice"));
    Loss::Evicted { by }
}
