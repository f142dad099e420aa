//! A backend whose calls panic, before they return a future or after their effect: nobody waits for ever.

use tenure::{Error, Fault};

use crate::stage::{Act, Verb};
use crate::world::{MS, SECOND, World, mutex, pass, served, spawned, successor};

/// The ways in which the next call panics.
const WAYS: [fn(&Act); 2] = [Act::panic_at_once, |act| {
    act.meanwhile(|| panic!("the test lets this call panic"));
}];

fn assert_is_an_error<T: std::fmt::Debug>(answer: Result<T, Error>) {
    match answer {
        Err(Error::Backend(error)) => assert_eq!(error.fault(), Fault::Store),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_panics_at_once_frees_its_key() {
    for fair in [false, true] {
        for panic in WAYS {
            let (world, client, stage) = World::with_stage();
            panic(&stage.act(Verb::Acquire));
            assert_is_an_error(mutex(&client, fair).lock().await);
            served(successor(&client).await).await.unlock().await.unwrap();
            world.freed("k", SECOND).await;
        }
    }
}

/// Panics while its caller polls it, and after the client's own task took it over.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_panics_later_lets_waiters_go_on() {
    for fair in [false, true] {
        for time in [10 * MS, 250 * MS] {
            let (world, client, stage) = World::with_stage();
            let acquire = stage.act(Verb::Acquire);
            acquire.hold_before();
            let first = spawned(mutex(&client, fair).lock()).await;
            let next = successor(&client).await;
            pass(time).await;
            acquire.meanwhile(|| panic!("the test lets this call panic"));
            acquire.go_on();
            assert_is_an_error(first.await.unwrap());
            served(next).await.unlock().await.unwrap();
            world.freed("k", SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_panics_fails_one_waiter_and_no_other() {
    for fair in [false, true] {
        for panic in WAYS {
            let (world, client, stage) = World::with_stage();
            let elsewhere = world.client().mutex("k").lock().await.unwrap();
            let first = spawned(mutex(&client, fair).lock()).await;
            let next = successor(&client).await;
            panic(&stage.act(Verb::Acquire));
            elsewhere.unlock().await.unwrap();
            assert_is_an_error(tokio::time::timeout(60 * SECOND, first).await.unwrap().unwrap());
            served(next).await.unlock().await.unwrap();
            world.freed("k", SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_leaves_its_waiter_to_poll() {
    for panic in WAYS {
        let (world, client, stage) = World::with_stage();
        let elsewhere = world.client().mutex("k").lock().await.unwrap();
        panic(&stage.act(Verb::Watch));
        let waiting = successor(&client).await;
        elsewhere.unlock().await.unwrap();
        served(waiting).await.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_is_tried_again() {
    for panic in WAYS {
        let (_, client, stage) = World::with_stage();
        let guard = client.mutex("k").lock().await.unwrap();
        let waiting = successor(&client).await;
        panic(&stage.act(Verb::Renew));
        assert_is_an_error(guard.verify().await);
        panic(&stage.act(Verb::Renew));
        // Longer than the lease, shorter than the patience of the waiter.
        pass(9 * SECOND).await;
        assert!(stage.act(Verb::Renew).count() >= 1);
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        served(waiting).await.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_panics_is_tried_again_and_waiters_go_on() {
    for panic in WAYS {
        for drops in [false, true] {
            let (world, client, stage, guard) = World::held().await;
            let waiting = successor(&client).await;
            panic(&stage.act(Verb::Release));
            if drops {
                drop(guard);
            } else {
                guard.unlock().await.unwrap();
            }
            served(waiting).await.unlock().await.unwrap();
            world.freed("k", SECOND).await;
        }
    }
}
