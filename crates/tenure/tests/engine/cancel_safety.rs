//! Dropping futures at every await point: nothing is left in the store, and no waiter is stuck.

use std::future::Future;

use tenure::{Client, Guard, Settings, multi};

use crate::stage::Verb;
use crate::world::{
    MS, SECOND, World, begun, mutex, pass, poll_once, queued, runtime, settle, spawned, worker,
};

/// More polls than any operation here needs.
const MOST: usize = 80;

/// Polls a future so often, and lets others act after each time; whether it has ended.
async fn poll_times<F: Future + Unpin>(polls: usize, future: &mut F) -> bool {
    for _ in 0..polls {
        if poll_once(future).await.is_some() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Drops an operation after each possible number of polls, with a waiter of the same client and one of another
/// beside it; both must get their turn, and the key must be free in the end.
async fn at_every_await_point(keys: &[&str], operation: impl AsyncFn(Client)) {
    for polls in 0..MOST {
        let (world, client, stage) = World::with_stage();
        stage.yield_everywhere(1);
        let mut task = Box::pin(operation(client.clone()));
        let finished = poll_times(polls, &mut task).await;
        let here = tokio::spawn(turn(client.clone(), keys[0].to_owned()));
        let elsewhere = spawned(turn(world.client(), keys[0].to_owned())).await;
        drop(task);
        let limit = tokio::time::timeout(2 * SECOND, async {
            (here.await.unwrap(), elsewhere.await.unwrap())
        });
        assert!(limit.await.is_ok(), "a waiter is stuck after {polls} polls");
        for key in keys {
            world.freed(key, SECOND).await;
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

/// R2: a future dropped at some await point of acquire must leave no claim.
#[tokio::test(start_paused = true)]
async fn of_acquire() {
    at_every_await_point(&["k"], async |client| drop(client.mutex("k").lock().await)).await;
}

#[tokio::test(start_paused = true)]
async fn of_a_fair_acquire() {
    at_every_await_point(&["k"], async |client| drop(client.mutex("k").fair().lock().await)).await;
}

/// R26: a waiter that goes, wherever it is, leaves no ghost in the store's queue.
#[tokio::test(start_paused = true)]
async fn of_a_fair_acquire_that_has_to_wait() {
    for polls in 0..20 {
        let (world, client, stage) = World::with_stage();
        stage.yield_everywhere(1);
        let busy = world.client().mutex("k").lock().await.unwrap();
        let mut waiting = client.mutex("k").fair().lock();
        assert!(!poll_times(polls, &mut waiting).await);
        drop(waiting);
        settle().await;
        let waiters = world.queue("k").await;
        assert!(waiters.is_empty(), "after {polls} polls: {waiters:?}");
        drop(busy);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_try() {
    at_every_await_point(&["k"], async |client| drop(client.mutex("k").try_lock().await)).await;
}

/// R2: nor at some await point of a release.
#[tokio::test(start_paused = true)]
async fn of_release() {
    at_every_await_point(&["k"], async |client| turn(client, "k".to_owned()).await).await;
}

/// R2: nor at some await point of a renewal.
#[tokio::test(start_paused = true)]
async fn of_renew() {
    at_every_await_point(&["k"], async |client| {
        let guard = client.mutex("k").lock().await.unwrap();
        guard.verify().await.unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

/// Two guards pass the claim between them, in memory and through the store (R2).
#[tokio::test(start_paused = true)]
async fn of_a_hand_over() {
    for passing in [true, false] {
        for polls in 0..MOST {
            let world = World::new();
            let (client, stage) = world.staged_with(Settings::default().passing(passing));
            let guard = client.mutex("k").lock().await.unwrap();
            let taker = queued(client.mutex("k").lock()).await;
            // Twice per call, because the first poll of an unlock polls its release twice.
            stage.yield_everywhere(2);
            let mut unlock = Box::pin(async move { guard.unlock().await.unwrap() });
            let done = poll_times(polls, &mut unlock).await;
            drop(unlock);
            if polls % 3 == 0 {
                drop(taker);
            } else {
                let taken = tokio::time::timeout(SECOND, taker).await;
                drop(taken.expect("the taker is stuck").unwrap());
            }
            world.freed("k", SECOND).await;
            if done && polls > 12 {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_multi() {
    at_every_await_point(&["a", "b", "c"], async |client| {
        let all = multi(["a", "b", "c"].map(|key| client.mutex(key)));
        all.lock().await.unwrap().unlock().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_a_multi_that_has_to_wait() {
    for polls in 0..=20 {
        let (world, client, stage) = World::with_stage();
        stage.yield_everywhere(1);
        let busy = world.client().mutex("b").lock().await.unwrap();
        let mut task = multi(["a", "b", "c"].map(|key| client.mutex(key))).lock();
        assert!(!poll_times(polls, &mut task).await);
        drop(task);
        busy.unlock().await.unwrap();
        for key in ["a", "b", "c"] {
            world.freed(key, SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_close() {
    for polls in 0..40 {
        let (world, client, stage) = World::with_stage();
        let guard = client.mutex("held").lock().await.unwrap();
        let busy = world.client().mutex("busy").lock().await.unwrap();
        let waiting = [client.mutex("busy"), client.mutex("busy").fair()];
        let waiting = waiting.map(|mutex| tokio::spawn(mutex.lock()));
        settle().await;
        stage.yield_everywhere(1);
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
        world.freed("held", SECOND).await;
        world.freed("busy", SECOND).await;
    }
}

/// The call's outcome is awaited before the claim is withdrawn: a withdrawal that overtakes it would be undone by it.
#[tokio::test(start_paused = true)]
async fn a_dropped_lock_is_withdrawn_after_its_own_call() {
    let (world, client, stage) = World::with_stage();
    stage.act(Verb::Acquire).hold_before();
    drop(begun(client.mutex("k").lock()).await);
    pass(300 * MS).await;
    assert_eq!(stage.act(Verb::Release).count(), 0, "its call is still under way");
    stage.act(Verb::Acquire).go_on();
    settle().await;
    world.freed("k", 10 * MS).await;
    assert_eq!(stage.act(Verb::Release).count(), 1);
}

/// A reply that is lost may hide a grant: the claim of a try or a wait is withdrawn all the same (R2, R25).
#[tokio::test(start_paused = true)]
async fn an_attempt_whose_reply_is_lost_leaves_no_claim() {
    for attempt in ["try", "wait", "fair wait"] {
        let (world, client, stage) = World::with_stage();
        stage.act(Verb::Acquire).fail_after(1);
        let mutex = mutex(&client, attempt == "fair wait");
        if attempt == "try" {
            assert!(mutex.try_lock().await.is_err());
        } else {
            drop(begun(mutex.lock()).await);
        }
        world.freed("k", 10 * MS).await;
    }
}

/// A poll whose reply is lost may hide a grant: when the wait ends, the claim is withdrawn (R2, R25).
#[tokio::test(start_paused = true)]
async fn a_wait_dropped_after_an_unanswered_poll_leaves_no_claim() {
    let (world, client, stage) = World::with_stage();
    let held = world.client().mutex("k").lock().await.unwrap();
    let waiting = queued(client.mutex("k").lock()).await;
    stage.act(Verb::Acquire).fail_after(1);
    held.unlock().await.unwrap();
    settle().await;
    assert!(!world.is_free("k").await, "the store has granted it");
    drop(waiting);
    world.freed("k", 10 * MS).await;
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
fn a_client_whose_runtime_has_ended_says_so() {
    let ended = runtime();
    let client = ended.block_on(tenure::connect("memory:")).unwrap();
    let guard = ended.block_on(client.mutex("k").lock()).unwrap();
    drop(ended);
    drop(guard);
    let locked = runtime().block_on(client.mutex("j").lock());
    let said = matches!(locked, Err(tenure::Error::Closed(why)) if why.contains("runtime"));
    assert!(said, "{locked:?}");
}
