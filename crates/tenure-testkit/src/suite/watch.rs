//! Wake-ups: hints that may be lost, always backed by a poll.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, Fairness, Grant, Mode, Phase, WakeUp, Wakes};

use super::client::hears;
use super::{Client, Departed, Trial};

/// A waiter that watches is woken by the release; where wake-ups may be lost, polling brings it on.
pub async fn a_release_lets_a_watching_waiter_proceed(trial: Trial) {
    brought_on_by(&trial, async |holder, held| holder.release(held).await).await;
}

/// So is one by an eviction, once the cooldown has passed.
pub async fn an_eviction_lets_a_watching_waiter_proceed(trial: Trial) {
    brought_on_by(&trial, async |holder, held| holder.evict(held, "alice").await).await;
}

async fn brought_on_by(trial: &Trial, end: impl AsyncFnOnce(&Client, &Claim) -> Departed) {
    let ([holder, waiter], key) = (trial.two().await, trial.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let wakes = waiter.watch(&waiting).await;
    waiter.waits(&waiting).await;
    end(&holder, &held).await.freed_it(&held);
    brought_on(trial, &waiter, &waiting, wakes).await;
}

/// Every release in a row is heard: a watch is armed until it is dropped.
pub async fn a_watch_stays_armed_until_dropped(trial: Trial) {
    let ([holder, waiter], key) = (trial.two().await, trial.key());
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let Some(mut wakes) = waiter.watch(&waiting).await else {
        return assert_eq!(trial.profile().wake_up, WakeUp::Poll);
    };
    for _ in 0..3 {
        let held = holder.claim(&key, Mode::Exclusive);
        holder.granted_soon(&held).await;
        holder.release(&held).await.freed_it(&held);
        if trial.profile().wake_up == WakeUp::Reliable {
            assert!(hears(&mut wakes).await, "a release was not heard");
        }
    }
    drop(wakes);
    waiter.withdraw(&waiting).await;
    holder.finds_free(&key, Mode::Exclusive).await;
}

/// A waiter that never hears anything is granted by polling alone (R15).
pub async fn a_waiter_without_wake_ups_proceeds_by_polling(trial: Trial) {
    let ([holder, waiter], key) = (trial.two().await, trial.key());
    let held = holder.holds(&key, Mode::Exclusive).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    waiter.waits(&waiting).await;
    holder.release(&held).await.freed_it(&held);
    waiter.granted_soon(&waiting).await;
}

/// A watch changes nothing about the claim: it is neither placed nor kept by it.
pub async fn watching_does_not_change_the_claim(trial: Trial) {
    let ([a, b], key) = (trial.two().await, trial.key());
    let claim = a.claim(&key, Mode::Exclusive);
    let before = a.watch(&claim).await;
    assert_eq!(b.status(&key).await, None, "a watch places nothing");
    drop(before);
    a.granted_soon(&claim).await;
    let during = a.watch(&claim).await;
    a.stays_alive(&claim, Phase::Granted).await;
    drop(during);
    a.stays_alive(&claim, Phase::Granted).await;
    b.finds_busy(&key, Mode::Exclusive).await;
}

/// When the head of the queue is withdrawn, the next one hears of it.
pub async fn withdrawing_the_head_lets_the_next_waiter_proceed(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, first, second], key) = (trial.three().await, trial.key());
    let held = holder.fair(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let head = first.queues(&key, Mode::Exclusive).await;
    let next = second.queues(&key, Mode::Exclusive).await;
    holder.release(&held).await.freed_it(&held);
    let wakes = second.watch(&next).await;
    second.waits(&next).await;
    first.withdraw(&head).await.freed_it(&head);
    brought_on(&trial, &second, &next, wakes).await;
}

/// Those who queue elsewhere are told of too.
pub async fn a_release_reports_waiters_of_other_clients(trial: Trial) {
    skip_if!(trial.lacks_so(Mode::Exclusive, Fairness::Fifo).await);
    let ([holder, waiter], key) = (trial.two().await, trial.key());
    let held = holder.fair(&key, Mode::Exclusive);
    holder.granted(&held).await;
    let own = holder.queues(&key, Mode::Exclusive).await;
    holder.queues(&key, Mode::Exclusive).await;
    let alone = holder.release(&held).await;
    holder.granted_soon(&own).await;
    waiter.queues(&key, Mode::Exclusive).await;
    let followed = holder.release(&own).await;
    if trial.profile().reports_waiters {
        assert_eq!((alone.others, followed.others), (Some(0), Some(1)));
    }
}

/// A store that can tell counts those who watch elsewhere, and stops when they stop.
pub async fn a_release_counts_watchers_of_other_clients(trial: Trial) {
    let ([holder, waiter], key) = (trial.two().await, trial.key());
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
        // It may count one who has just gone: that a watch was dropped need not have arrived.
        let mut patience = 100;
        while others > Some(expected) && patience > 0 {
            patience -= 1;
            // sleep: nobody tells when a store has noticed that somebody listens no more.
            tokio::time::sleep(Duration::from_millis(10)).await;
            others = grant_and_release().await;
        }
        let counted = wakes.is_some() || !watches;
        if trial.profile().reports_waiters && counted {
            assert_eq!(others, Some(expected), "watching: {watches}");
        }
    }
}

/// Those who watch in the releasing client itself do not count as waiting elsewhere.
pub async fn a_release_does_not_count_the_clients_own_waiters(trial: Trial) {
    let (client, key) = (trial.client().await, trial.key());
    let held = client.holds(&key, Mode::Exclusive).await;
    let waiting = client.claim(&key, Mode::Exclusive);
    let wakes = client.watch(&waiting).await;
    let departed = client.release(&held).await;
    if trial.profile().reports_waiters {
        assert_eq!(departed.others, Some(0));
    }
    drop(wakes);
    client.granted_soon(&waiting).await;
}

/// Lets a waiter go on as the engine does: it polls after each wake-up, and without one when time has passed.
async fn brought_on(trial: &Trial, waiter: &Client, waiting: &Arc<Claim>, wakes: Option<Wakes>) -> Grant {
    if let Some(mut wakes) = wakes
        && trial.profile().wake_up == WakeUp::Reliable
    {
        assert!(hears(&mut wakes).await, "the wake-up never came");
        return waiter.granted_soon(waiting).await;
    }
    waiter.granted_within(waiting, Duration::from_secs(1)).await
}
