//! Dropping futures at every await point: nothing is left in the store, and no waiter is stuck.

use std::future::Future;
use std::pin::Pin;

use tenure::{Client, Guard, Settings, multi};

use crate::world::{MS, SECOND, World, pass, poll_once, settle};

/// More polls than any operation here needs.
const MOST: usize = 80;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Drops an operation after each possible number of polls, with a waiter of the same client and one of another
/// beside it; both must get their turn, and the key must be free in the end.
async fn at_every_await_point(keys: &[&str], operation: impl Fn(Client) -> Task) {
    let mut finished = false;
    for polls in 0..MOST {
        let world = World::new();
        let (client, stage) = world.staged();
        stage.yield_everywhere(1);
        let mut task = operation(client.clone());
        for _ in 0..polls {
            if poll_once(&mut task).await.is_some() {
                finished = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        let here = tokio::spawn(turn(client.clone(), keys[0].to_owned()));
        let elsewhere = tokio::spawn(turn(world.client(), keys[0].to_owned()));
        settle().await;
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
    at_every_await_point(&["k"], |client| {
        Box::pin(async move {
            let guard = client.mutex("k").lock().await.unwrap();
            drop(guard);
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_a_fair_acquire() {
    at_every_await_point(&["k"], |client| {
        Box::pin(async move { drop(client.mutex("k").fair().lock().await) })
    })
    .await;
}

/// R26: a waiter that goes, wherever it is, leaves no ghost in the store's queue.
#[tokio::test(start_paused = true)]
async fn of_a_fair_acquire_that_has_to_wait() {
    for polls in 0..20 {
        let world = World::new();
        let (client, stage) = world.staged();
        stage.yield_everywhere(1);
        let busy = world.client().mutex("k").lock().await.unwrap();
        let mut waiting = client.mutex("k").fair().lock();
        for _ in 0..polls {
            assert!(poll_once(&mut waiting).await.is_none());
            tokio::task::yield_now().await;
        }
        drop(waiting);
        settle().await;
        let waiters = world.status("k").await.unwrap().waiters.unwrap();
        assert!(waiters.is_empty(), "after {polls} polls: {waiters:?}");
        drop(busy);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_try() {
    at_every_await_point(&["k"], |client| {
        Box::pin(async move { drop(client.mutex("k").try_lock().await) })
    })
    .await;
}

/// R2: nor at some await point of a release.
#[tokio::test(start_paused = true)]
async fn of_release() {
    at_every_await_point(&["k"], |client| {
        Box::pin(async move { client.mutex("k").lock().await.unwrap().unlock().await.unwrap() })
    })
    .await;
}

/// R2: nor at some await point of a renewal.
#[tokio::test(start_paused = true)]
async fn of_renew() {
    at_every_await_point(&["k"], |client| {
        Box::pin(async move {
            let guard = client.mutex("k").lock().await.unwrap();
            guard.verify().await.unwrap();
            guard.unlock().await.unwrap();
        })
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
            let mut taker = client.mutex("k").lock();
            assert!(poll_once(&mut taker).await.is_none());
            settle().await;
            stage.yield_everywhere(1);
            let mut unlock: Task = Box::pin(async move { guard.unlock().await.unwrap() });
            let mut done = false;
            for poll in 0..polls {
                // Both futures are polled in turn, so that each is dropped in every state of the other.
                done |= if poll % 2 == 0 {
                    poll_once(&mut unlock).await.is_some()
                } else {
                    false
                };
                if done {
                    break;
                }
                tokio::task::yield_now().await;
            }
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
    at_every_await_point(&["a", "b", "c"], |client| {
        Box::pin(async move {
            let all = multi(["a", "b", "c"].map(|key| client.mutex(key)));
            all.lock().await.unwrap().unlock().await.unwrap();
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_a_multi_that_has_to_wait() {
    for polls in 0..MOST {
        let world = World::new();
        let (client, stage) = world.staged();
        stage.yield_everywhere(1);
        let elsewhere = world.client();
        let busy = elsewhere.mutex("b").lock().await.unwrap();
        let all = multi(["a", "b", "c"].map(|key| client.mutex(key)));
        let mut task = Box::pin(all.lock());
        for poll in 0..polls {
            if poll_once(&mut task).await.is_some() {
                break;
            }
            if poll == 20 {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(task);
        busy.unlock().await.unwrap();
        for key in ["a", "b", "c"] {
            world.freed(key, SECOND).await;
        }
        if polls > 30 {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_close() {
    for polls in 0..40 {
        let world = World::new();
        let (client, stage) = world.staged();
        let guard = client.mutex("held").lock().await.unwrap();
        let elsewhere = world.client();
        let busy = elsewhere.mutex("busy").lock().await.unwrap();
        let waiting: Vec<_> = [client.mutex("busy"), client.mutex("busy").fair()]
            .map(|mutex| tokio::spawn(async move { mutex.lock().await.map(drop) }))
            .into_iter()
            .collect();
        settle().await;
        stage.yield_everywhere(1);
        let closer = client.clone();
        let mut close: Task = Box::pin(async move {
            let _ = closer.close(SECOND).await;
        });
        for _ in 0..polls {
            if poll_once(&mut close).await.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(close);
        if polls == 0 {
            drop(guard);
            for waiter in waiting {
                waiter.abort();
            }
        } else {
            assert!(!guard.is_held());
            for waiter in waiting {
                let ended = tokio::time::timeout(SECOND, waiter)
                    .await
                    .expect("a waiter outlives its client");
                assert!(ended.unwrap().is_err());
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
    use crate::stage::Verb;

    let world = World::new();
    let (client, stage) = world.staged();
    stage.act(Verb::Acquire).hold_before();
    let mut lock = client.mutex("k").lock();
    assert!(poll_once(&mut lock).await.is_none());
    drop(lock);
    pass(300 * MS).await;
    assert_eq!(stage.act(Verb::Release).count(), 0, "its call is still under way");
    stage.act(Verb::Acquire).go_on();
    settle().await;
    world.freed("k", 10 * MS).await;
    assert_eq!(stage.act(Verb::Release).count(), 1);
}

/// A reply that is lost may hide a grant: the claim is withdrawn all the same (R2, R25).
#[tokio::test(start_paused = true)]
async fn a_try_whose_reply_is_lost_leaves_no_claim() {
    use crate::stage::Verb;

    let world = World::new();
    let (client, stage) = world.staged();
    stage.act(Verb::Acquire).fail_after(1);
    assert!(client.mutex("k").try_lock().await.is_err());
    world.freed("k", 10 * MS).await;
}

#[test]
fn a_guard_can_be_dropped_outside_a_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(tenure::connect("memory:")).unwrap();
    let guard: Guard = runtime.block_on(client.mutex("k").lock()).unwrap();
    drop(guard);
    let again = runtime.block_on(client.mutex("k").lock_within(SECOND));
    assert!(again.is_ok());
}

#[test]
fn a_client_whose_runtime_has_ended_says_so() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let client = runtime.block_on(tenure::connect("memory:")).unwrap();
    let guard = runtime.block_on(client.mutex("k").lock()).unwrap();
    drop(runtime);
    drop(guard);
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let Err(error) = other.block_on(client.mutex("j").lock()) else {
        panic!("its watchdog is gone")
    };
    assert!(
        matches!(error, tenure::Error::Closed(why) if why.contains("runtime")),
        "{error}"
    );
}
