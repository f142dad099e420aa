//! Futures dropped at every await point leave nothing in the store, and no waiter is stuck.

use std::future::Future;

use tenure::{Client, Guard, Settings, multi};

use crate::faulty_backend::Verb;
use crate::fixture::{
    Fixture, MS, SECOND, begun, mutex, pass, poll_once, queued, runtime, settle, spawned, worker,
};

/// No operation in this file needs more polls than this.
const MOST: usize = 80;

/// Polls a future up to `polls` times, and lets other tasks run after each poll. Returns whether the future has ended.
async fn poll_times<F: Future + Unpin>(polls: usize, future: &mut F) -> bool {
    for _ in 0..polls {
        if poll_once(future).await.is_some() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Drops an operation after each possible number of polls, while a waiter of the same client and one of another client
/// wait. Both must acquire the key, and the key must be free at the end.
async fn at_every_await_point(keys: &[&str], operation: impl AsyncFn(Client)) {
    for polls in 0..MOST {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        backend.yield_everywhere(1);
        let mut task = Box::pin(operation(client.clone()));
        let finished = poll_times(polls, &mut task).await;
        let here = tokio::spawn(turn(client.clone(), keys[0].to_owned()));
        let elsewhere = spawned(turn(fixture.client(), keys[0].to_owned())).await;
        drop(task);
        let limit = tokio::time::timeout(2 * SECOND, async {
            (here.await.unwrap(), elsewhere.await.unwrap())
        });
        assert!(limit.await.is_ok(), "a waiter is stuck after {polls} polls");
        for key in keys {
            fixture.freed(key, SECOND).await;
        }
        if finished {
            return;
        }
    }
    panic!("the operation did not end within {MOST} polls");
}

/// Locks and unlocks once.
async fn turn(client: Client, key: String) {
    client.mutex(key).lock().await.unwrap().unlock().await.unwrap();
}

/// R2: an acquire that is dropped at any await point leaves no claim.
#[tokio::test(start_paused = true)]
async fn acquire_is_cancel_safe() {
    at_every_await_point(&["k"], async |client| drop(client.mutex("k").lock().await)).await;
}

#[tokio::test(start_paused = true)]
async fn fair_acquire_is_cancel_safe() {
    at_every_await_point(&["k"], async |client| drop(client.mutex("k").fair().lock().await)).await;
}

/// R26: a fair waiter that is dropped at any await point leaves no claim in the store's queue.
#[tokio::test(start_paused = true)]
async fn waiting_fair_acquire_is_cancel_safe() {
    for polls in 0..20 {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        backend.yield_everywhere(1);
        let busy = fixture.client().mutex("k").lock().await.unwrap();
        let mut waiting = client.mutex("k").fair().lock();
        assert!(!poll_times(polls, &mut waiting).await);
        drop(waiting);
        settle().await;
        let waiters = fixture.queue("k").await;
        assert!(waiters.is_empty(), "after {polls} polls: {waiters:?}");
        drop(busy);
    }
}

#[tokio::test(start_paused = true)]
async fn try_lock_is_cancel_safe() {
    at_every_await_point(&["k"], async |client| drop(client.mutex("k").try_lock().await)).await;
}

/// R2: a release that is dropped at any await point leaves no claim.
#[tokio::test(start_paused = true)]
async fn release_is_cancel_safe() {
    at_every_await_point(&["k"], async |client| turn(client, "k".to_owned()).await).await;
}

/// R2: `verify` renews the claim. Dropped at any await point, it leaves no claim.
#[tokio::test(start_paused = true)]
async fn renew_is_cancel_safe() {
    at_every_await_point(&["k"], async |client| {
        let guard = client.mutex("k").lock().await.unwrap();
        guard.verify().await.unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

/// R2: an unlock that hands the key to a waiter, in memory or through the store, leaves no claim if it is dropped at any
/// await point.
#[tokio::test(start_paused = true)]
async fn hand_over_is_cancel_safe() {
    for local_hand_over in [true, false] {
        for polls in 0..MOST {
            let fixture = Fixture::new();
            let (client, backend) =
                fixture.faulty_client_with(Settings::default().local_handover(local_hand_over));
            let guard = client.mutex("k").lock().await.unwrap();
            let taker = queued(client.mutex("k").lock()).await;
            // Each call yields twice before its effect and twice after it. With a single yield, the first poll of an
            // unlock would already release the claim, because it polls the release twice.
            backend.yield_everywhere(2);
            let mut unlock = Box::pin(async move { guard.unlock().await.unwrap() });
            let done = poll_times(polls, &mut unlock).await;
            drop(unlock);
            if polls % 3 == 0 {
                drop(taker);
            } else {
                let taken = tokio::time::timeout(SECOND, taker).await;
                drop(taken.expect("the successor is stuck").unwrap());
            }
            fixture.freed("k", SECOND).await;
            if done && polls > 12 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn multi_lock_is_cancel_safe() {
    at_every_await_point(&["a", "b", "c"], async |client| {
        let all = multi(["a", "b", "c"].map(|key| client.mutex(key)));
        all.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn waiting_multi_lock_is_cancel_safe() {
    for polls in 0..=20 {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        backend.yield_everywhere(1);
        let busy = fixture.client().mutex("b").lock().await.unwrap();
        let mut task = multi(["a", "b", "c"].map(|key| client.mutex(key))).lock();
        assert!(!poll_times(polls, &mut task).await);
        drop(task);
        busy.unlock().await.unwrap();
        for key in ["a", "b", "c"] {
            fixture.freed(key, SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn close_is_cancel_safe() {
    for polls in 0..40 {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        let guard = client.mutex("held").lock().await.unwrap();
        let busy = fixture.client().mutex("busy").lock().await.unwrap();
        let waiting = [client.mutex("busy"), client.mutex("busy").fair()];
        let waiting = waiting.map(|mutex| tokio::spawn(mutex.lock()));
        settle().await;
        backend.yield_everywhere(1);
        let mut close = Box::pin(client.close(SECOND));
        poll_times(polls, &mut close).await;
        drop(close);
        if polls == 0 {
            drop(guard);
            waiting.iter().for_each(tokio::task::JoinHandle::abort);
        } else {
            assert!(!guard.is_held());
            for waiter in waiting {
                let ended = tokio::time::timeout(SECOND, waiter).await;
                assert!(ended.expect("a waiter outlives its client").unwrap().is_err());
            }
        }
        busy.unlock().await.unwrap();
        fixture.freed("held", SECOND).await;
        fixture.freed("busy", SECOND).await;
    }
}

/// The client withdraws the claim of a dropped lock only when the claim's own call has ended: until then the call could
/// still place the claim.
#[tokio::test(start_paused = true)]
async fn a_dropped_lock_is_withdrawn_after_its_own_call() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    backend.control(Verb::Acquire).hold_before();
    drop(begun(client.mutex("k").lock()).await);
    pass(300 * MS).await;
    assert_eq!(
        backend.control(Verb::Release).count(),
        0,
        "its call is still under way"
    );
    backend.control(Verb::Acquire).resume();
    settle().await;
    fixture.freed("k", 10 * MS).await;
    assert_eq!(backend.control(Verb::Release).count(), 1);
}

/// R2, R25: a lost reply may hide a grant. The client withdraws the claim when the attempt ends.
#[tokio::test(start_paused = true)]
async fn an_attempt_with_a_lost_reply_leaves_no_claim() {
    for attempt in ["try", "wait", "fair wait"] {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        backend.control(Verb::Acquire).fail_after(1);
        let mutex = mutex(&client, attempt == "fair wait");
        if attempt == "try" {
            assert!(mutex.try_lock().await.is_err());
        } else {
            drop(begun(mutex.lock()).await);
        }
        fixture.freed("k", 10 * MS).await;
    }
}

/// R2, R25: a lost reply to a fair waiter's poll hides a grant. The client withdraws the claim of the dropped waiter.
#[tokio::test(start_paused = true)]
async fn a_wait_dropped_after_an_unanswered_poll_leaves_no_claim() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let held = fixture.client().mutex("k").lock().await.unwrap();
    let waiting = queued(client.mutex("k").fair().lock()).await;
    backend.control(Verb::Acquire).fail_after(1);
    held.unlock().await.unwrap();
    settle().await;
    assert!(!fixture.is_free("k").await, "the store has granted it");
    drop(waiting);
    fixture.freed("k", 10 * MS).await;
}

#[test]
fn a_guard_can_be_dropped_outside_a_runtime() {
    let runtime = worker("test");
    let client = runtime.block_on(tenure::connect("memory:")).unwrap();
    let guard: Guard = runtime.block_on(client.mutex("k").lock()).unwrap();
    drop(guard);
    let again = runtime.block_on(client.mutex("k").lock_within(SECOND));
    assert!(again.is_ok());
}

#[test]
fn a_client_reports_that_its_runtime_has_ended() {
    let ended = runtime();
    let client = ended.block_on(tenure::connect("memory:")).unwrap();
    let guard = ended.block_on(client.mutex("k").lock()).unwrap();
    drop(ended);
    drop(guard);
    let locked = runtime().block_on(client.mutex("j").lock());
    let said = matches!(locked, Err(tenure::Error::Closed(why)) if why.contains("runtime"));
    assert!(said, "{locked:?}");
}
