//! Wake-ups: a store may lose them, so polling alone must be enough.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, Fairness, Grant, Mode, Phase, WakeUp, Wakes};

use super::client::is_woken;
use super::{Fixture, ReleaseOutcome, TestClient};

/// A release wakes a watching waiter, which is then granted. If the store may lose wake-ups, polling is enough.
pub async fn a_release_lets_a_watching_waiter_proceed(fixture: Fixture) {
    proceeds_after(&fixture, async |holder, held| holder.release(held).await).await;
}

/// An eviction wakes a watching waiter, which is then granted. If the store may lose wake-ups, polling is enough.
pub async fn an_eviction_lets_a_watching_waiter_proceed(fixture: Fixture) {
    proceeds_after(&fixture, async |holder, held| holder.evict(held, "alice").await).await;
}

async fn proceeds_after(fixture: &Fixture, end: impl AsyncFnOnce(&TestClient, &Claim) -> ReleaseOutcome) {
    let ([holder, waiter], key) = (fixture.two().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let wakes = waiter.watch(&waiting).await;
    waiter.waits(&waiting).await;
    end(&holder, &held).await.freed_it(&held);
    proceeds(fixture, &waiter, &waiting, wakes).await;
}

/// A watch stays armed until it is dropped: each of several releases wakes the watcher, if the store loses no wake-ups.
pub async fn a_watch_stays_armed_until_dropped(fixture: Fixture) {
    let ([holder, waiter], key) = (fixture.two().await, fixture.key());
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let Some(mut wakes) = waiter.watch(&waiting).await else {
        return assert_eq!(fixture.profile().wake_up, WakeUp::Poll);
    };
    for _ in 0..3 {
        let held = holder.claim(&key, Mode::Exclusive);
        holder.granted_soon(&held).await;
        holder.release(&held).await.freed_it(&held);
        if fixture.profile().wake_up == WakeUp::Reliable {
            assert!(is_woken(&mut wakes).await, "a release did not wake the watcher");
        }
    }
    drop(wakes);
    waiter.withdraw(&waiting).await;
    holder.finds_free(&key, Mode::Exclusive).await;
}

/// A waiter without a watch is granted by polling alone (R15).
pub async fn a_waiter_without_wake_ups_proceeds_by_polling(fixture: Fixture) {
    let ([holder, waiter], key) = (fixture.two().await, fixture.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    waiter.waits(&waiting).await;
    holder.release(&held).await.freed_it(&held);
    waiter.granted_soon(&waiting).await;
}

/// Watching a claim does not place it, and starting or dropping a watch does not end a granted claim.
pub async fn watching_does_not_change_the_claim(fixture: Fixture) {
    let ([a, b], key) = (fixture.two().await, fixture.key());
    let claim = a.claim(&key, Mode::Exclusive);
    let before = a.watch(&claim).await;
    assert_eq!(b.status(&key).await, None, "watching does not place a claim");
    drop(before);
    a.granted_soon(&claim).await;
    let during = a.watch(&claim).await;
    a.stays_alive(&claim, Phase::Granted).await;
    drop(during);
    a.stays_alive(&claim, Phase::Granted).await;
    b.finds_busy(&key, Mode::Exclusive).await;
}

/// When the head of the queue is withdrawn, the next waiter is woken and granted.
pub async fn withdrawing_the_head_lets_the_next_waiter_proceed(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, first, second], key) = (fixture.three().await, fixture.key());
    let held = holder.fair(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let head = first.queues(&key, Mode::Exclusive).await;
    let next = second.queues(&key, Mode::Exclusive).await;
    holder.release(&held).await.freed_it(&held);
    let wakes = second.watch(&next).await;
    second.waits(&next).await;
    first.withdraw(&head).await.freed_it(&head);
    proceeds(&fixture, &second, &next, wakes).await;
}

/// A release reports the number of queued waiters of other clients, if the profile promises that.
pub async fn a_release_reports_waiters_of_other_clients(fixture: Fixture) {
    skip_if!(fixture.refuses(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, waiter], key) = (fixture.two().await, fixture.key());
    let held = holder.fair(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let own = holder.queues(&key, Mode::Exclusive).await;
    holder.queues(&key, Mode::Exclusive).await;
    let alone = holder.release(&held).await;
    holder.granted_soon(&own).await;
    waiter.queues(&key, Mode::Exclusive).await;
    let followed = holder.release(&own).await;
    if fixture.profile().reports_waiters {
        assert_eq!((alone.others, followed.others), (Some(0), Some(1)));
    }
}

/// A release reports the number of watchers of other clients, if the profile promises that. Dropped watches do not
/// count.
pub async fn a_release_counts_watchers_of_other_clients(fixture: Fixture) {
    let ([holder, waiter], key) = (fixture.two().await, fixture.key());
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let grant_and_release = async || {
        let held = holder.claim(&key, Mode::Exclusive);
        holder.granted_soon(&held).await;
        holder.release(&held).await.others
    };
    for (watches, expected) in [(false, 0), (true, 1), (false, 0)] {
        let wakes = if watches {
            waiter.watch(&waiting).await
        } else {
            None
        };
        let mut others = grant_and_release().await;
        // The store may count a watch for a while after it was dropped.
        let mut patience = 100;
        while others > Some(expected) && patience > 0 {
            patience -= 1;
            // sleep: no event tells when a store has noticed a dropped watch.
            tokio::time::sleep(Duration::from_millis(10)).await;
            others = grant_and_release().await;
        }
        let counted = wakes.is_some() || !watches;
        if fixture.profile().reports_waiters && counted {
            assert_eq!(others, Some(expected), "watching: {watches}");
        }
    }
}

/// Watches of the client that releases do not count as waiters of other clients.
pub async fn a_release_does_not_count_the_clients_own_waiters(fixture: Fixture) {
    let (client, key) = (fixture.client().await, fixture.key());
    let held = client.holds(&key, Mode::Exclusive).await;
    let waiting = client.claim(&key, Mode::Exclusive);
    let wakes = client.watch(&waiting).await;
    let released = client.release(&held).await;
    if fixture.profile().reports_waiters {
        assert_eq!(released.others, Some(0));
    }
    drop(wakes);
    client.granted_soon(&waiting).await;
}

/// A downgrade wakes the readers that watch, and each of them is granted (B20).
pub async fn a_downgrade_lets_watching_readers_proceed(fixture: Fixture) {
    skip_if!(fixture.refuses_mode(Mode::Write).await);
    let ([holder, first, second], key) = (fixture.three().await, fixture.key());
    let held = holder.holds(&key, Mode::Write).await;
    let mut readers = Vec::new();
    for client in [&first, &second] {
        let waiting = client.claim(&key, Mode::Read);
        let wakes = client.watch(&waiting).await;
        client.waits(&waiting).await;
        readers.push((client, waiting, wakes));
    }
    holder.downgrades(&held).await;
    for (client, waiting, wakes) in readers {
        proceeds(&fixture, client, &waiting, wakes).await;
    }
    holder.stays_alive(&held, Phase::Granted).await;
}

/// Acquires a waiting claim as the engine does: polls after a wake-up, or at intervals if wake-ups may be lost.
async fn proceeds(
    fixture: &Fixture,
    waiter: &TestClient,
    waiting: &Arc<Claim>,
    wakes: Option<Wakes>,
) -> Grant {
    if let Some(mut wakes) = wakes
        && fixture.profile().wake_up == WakeUp::Reliable
    {
        assert!(is_woken(&mut wakes).await, "the wake-up did not arrive");
        return waiter.granted_soon(waiting).await;
    }
    waiter.granted_within(waiting, Duration::from_secs(1)).await
}
