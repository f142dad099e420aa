//! Eviction: another client ends a claim, and the holder learns why.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::{FutureExt, StreamExt};
use tenure_backend::{
    Cause, Fairness, HANDOVER_WINDOW, HolderId, Invalidation, Loss, Mode, Order, Phase, ReleaseTarget, WakeUp,
};

use crate::suite::client::WAKE_UP_LIMIT;
use crate::suite::{Fixture, eviction_request, permits};

/// An evicted claim is gone at once and never granted again. Its client learns the evictor's name.
pub async fn an_evicted_claim_is_gone_and_learns_the_evictor(fixture: Fixture) {
    let ([holder, operator, other], key) = (fixture.three().await, fixture.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    other.finds_free(&key, Mode::Exclusive).await;
    let loss = holder.is_gone(&claim, Phase::Granted).await;
    if fixture.profile().remembers_ended {
        holder.has_ended(&claim).await;
        assert_eq!(loss, by_alice());
    }
    other.finds_free(&key, Mode::Exclusive).await;
}

/// An evicted holder can learn the evictor's name for as long as its lease would have lasted.
pub async fn an_eviction_is_remembered_for_the_claims_lease(fixture: Fixture) {
    if !fixture.profile().remembers_ended {
        return an_evicted_claim_is_gone_and_learns_the_evictor(fixture).await;
    }
    let ([holder, operator], key) = (fixture.two().await, fixture.key());
    let claim = holder.short_lease(&key, Mode::Exclusive);
    let grant = holder.granted(&claim).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    fixture.pass(grant.lease.mul_f64(0.8)).await;
    assert_eq!(holder.is_gone(&claim, Phase::Granted).await, by_alice());
}

/// A release sent after the eviction does not hide the eviction: the store still reports it to the holder.
pub async fn a_late_release_does_not_hide_an_eviction(fixture: Fixture) {
    if !fixture.profile().remembers_ended {
        return an_evicted_claim_is_gone_and_learns_the_evictor(fixture).await;
    }
    let ([holder, operator], key) = (fixture.two().await, fixture.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    operator.evict(&claim, "alice").await.freed_it(&claim);
    for _ in 0..2 {
        holder.withdraw(&claim).await.freed_nothing();
        assert_eq!(holder.is_gone(&claim, Phase::Granted).await, by_alice());
    }
}

/// The eviction of one reader does not affect another reader.
pub async fn an_eviction_ends_only_the_named_claim(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Read).await);
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let evicted = a.holds(&key, Mode::Read).await;
    let stays = b.holds(&key, Mode::Read).await;
    b.evict(&evicted, "bob").await.freed_it(&evicted);
    b.stays_alive(&stays, Phase::Granted).await;
    a.finds_busy(&key, Mode::Write).await;
}

/// Evicting `ReleaseTarget::All` ends every holder of the key, and no claim on another key.
pub async fn all_holders_of_a_key_can_be_evicted_at_once(fixture: Fixture) {
    let mode = if fixture.refuses_mode(Mode::Read).await {
        Mode::Exclusive
    } else {
        Mode::Read
    };
    let ([a, b, operator], [key, elsewhere]) = (fixture.three().await, [fixture.key(), fixture.key()]);
    let mut holders = vec![a.holds(&key, mode).await];
    if mode == Mode::Read {
        holders.push(b.holds(&key, mode).await);
    }
    let stays = b.holds(&elsewhere, Mode::Exclusive).await;
    let released = operator
        .send_release(eviction_request(ReleaseTarget::All(key.clone()), Duration::ZERO))
        .await;
    let freed: BTreeSet<String> = released.freed.iter().map(HolderId::to_string).collect();
    let expected: BTreeSet<String> = holders.iter().map(|claim| claim.at.id.to_string()).collect();
    assert!(
        freed == expected || released.repeated && freed.is_empty(),
        "{freed:?}"
    );
    for holder in &holders {
        a.is_gone(holder, Phase::Granted).await;
    }
    operator.finds_free(&key, mode).await;
    b.stays_alive(&stays, Phase::Granted).await;
}

/// Waiters stay in the queue when all holders are evicted, and the first waiter is granted next.
pub async fn waiters_stay_when_all_holders_are_evicted(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([a, b, operator], key) = (fixture.three().await, fixture.key());
    a.granted(&a.fair(&key, Mode::Exclusive)).await;
    let waiting = b.queues(&key, Mode::Exclusive).await;
    let released = operator
        .send_release(eviction_request(ReleaseTarget::All(key.clone()), Duration::ZERO))
        .await;
    // A repeated eviction names no claim (B7), and a store of one order counts the next claim as a holder before its poll.
    skip_if!(released.repeated && fixture.profile().mutex == Order::FifoForBoth);
    b.granted_soon(&waiting).await;
}

/// An evicted waiter's claim has ended. The next waiter is granted instead.
pub async fn a_waiter_can_be_evicted_from_the_queue(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([a, b, c], key) = (fixture.three().await, fixture.key());
    let held = a.fair(&key, Mode::Exclusive);
    a.granted(&held).await;
    let evicted = b.queues(&key, Mode::Exclusive).await;
    let next = c.queues(&key, Mode::Exclusive).await;
    a.evict(&evicted, "alice").await.freed_it(&evicted);
    if fixture.profile().remembers_ended {
        b.has_ended(&evicted).await;
    }
    a.release(&held).await.freed_it(&held);
    c.granted_soon(&next).await;
}

/// After the eviction of a holder, the store grants the key to no claim until the cooldown of 10 ms has passed. In this
/// time the evicted client may still hand over the claim in memory. A store that keeps no cooldown has `max_grants` 1.
pub async fn an_eviction_starts_a_cooldown(fixture: Fixture) {
    let [holder, operator, other] = fixture.three().await;
    let max_grants = fixture.profile().limits.max_grants;
    for mode in [Mode::Exclusive, Mode::Write, permits(1, 1)] {
        skip_if!(fixture.refuses_mode(mode).await);
        let key = fixture.key();
        let claim = holder.holds(&key, mode).await;
        let evicted = operator.now();
        let mut anonymous = eviction_request(ReleaseTarget::Claim(claim.at.clone()), HANDOVER_WINDOW);
        anonymous.cause = Cause::Evicted { by: None };
        operator.send_release(anonymous).await.freed_it(&claim);
        other.granted_soon(&other.claim(&key, mode)).await;
        let paused = other.now() - evicted;
        assert!(
            paused >= HANDOVER_WINDOW || max_grants.get() == 1,
            "granted {paused:?} after an eviction: a store without a cooldown has `max_grants` 1, not {max_grants}"
        );
    }
}

/// The eviction of a waiter starts no cooldown: the next waiter is granted at once.
pub async fn evicting_a_waiter_starts_no_cooldown(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, evicted, next], key) = (fixture.three().await, fixture.key());
    let held = holder.fair(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let head = evicted.queues(&key, Mode::Exclusive).await;
    let waiting = next.queues(&key, Mode::Exclusive).await;
    holder.release(&held).await.freed_it(&held);
    // Longer than any case, so that a cooldown of a slow store is noticed too.
    let eviction = eviction_request(ReleaseTarget::Claim(head.at.clone()), Duration::from_secs(600));
    let eviction = pin!(holder.send_release(eviction));
    // The suite's clock may run ahead of a busy server that has not begun with the eviction.
    let granted = pin!(next.granted_within(&waiting, Duration::from_secs(5)));
    // The call of the eviction may last as long as a cooldown: then the next waiter is granted meanwhile.
    if let Either::Left((released, granted)) = select(eviction, granted).await {
        released.freed_it(&head);
        granted.await;
    }
}

/// A store that reports evictions tells the evicted client which claim may be gone. If the store may lose messages, the
/// client learns of it from its next renewal.
pub async fn an_eviction_is_reported_to_its_client(fixture: Fixture) {
    let ([holder, other], key) = (fixture.two().await, fixture.key());
    let claim = holder.holds(&key, Mode::Exclusive).await;
    let subscribe = async || {
        let mut stream = holder.backend().clone().invalidations(claim.at.id.client())?;
        let begin = tokio::time::timeout(WAKE_UP_LIMIT, stream.next()).await;
        assert_eq!(begin, Ok(Some(Invalidation::All)), "it has subscribed");
        Some(stream)
    };
    let Some(first) = subscribe().await else { return };
    // A second subscription begins with it, too. A store with injected faults may refuse it.
    let mut of_holder = subscribe().await.unwrap_or(first);
    // A quorum has a subscription to each member. A hint for a key is lost in one for all that was not read.
    while of_holder.next().now_or_never().flatten().is_some() {}
    other.evict(&claim, "alice").await.freed_it(&claim);
    let told = async {
        while let Some(invalidation) = of_holder.next().await {
            match invalidation {
                Invalidation::All => {}
                Invalidation::Key(named) => return named,
            }
        }
        panic!("the stream has ended")
    };
    match tokio::time::timeout(WAKE_UP_LIMIT, told).await {
        Ok(named) => assert_eq!(named, key),
        Err(_) => assert_ne!(fixture.profile().wake_up, WakeUp::Reliable, "it was not told"),
    }
    holder.is_gone(&claim, Phase::Granted).await;
}

/// Evicting an unknown holder, or all holders of a free key, has no effect.
pub async fn evicting_an_absent_holder_has_no_effect(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let held = a.holds(&key, Mode::Exclusive).await;
    let unknown = ReleaseTarget::Foreign {
        key: key.clone(),
        id: Arc::from("no such holder"),
    };
    for who in [unknown, ReleaseTarget::All(fixture.key())] {
        b.send_release(eviction_request(who, Duration::ZERO))
            .await
            .freed_nothing();
    }
    a.stays_alive(&held, Phase::Granted).await;
    b.finds_busy(&key, Mode::Exclusive).await;
}

fn by_alice() -> Loss {
    let by = Some(Arc::from("alice"));
    Loss::Evicted { by }
}
