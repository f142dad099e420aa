//! Calls of the backend panic, before they return a future or after their effect. No waiter is stuck afterwards.

use tenure::{Error, Fault};

use crate::faulty_backend::{CallControl, Verb};
use crate::fixture::{Fixture, MS, SECOND, mutex, pass, served, spawned, successor};

/// The two ways in which the next call panics: at once, or after its effect.
const WAYS: [fn(&CallControl); 2] = [CallControl::panic_at_once, |control| {
    control.meanwhile(|| panic!("the test lets this call panic"));
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
            let (fixture, client, backend) = Fixture::with_faulty_backend();
            panic(&backend.control(Verb::Acquire));
            assert_is_an_error(mutex(&client, fair).lock().await);
            served(successor(&client).await).await.unlock().await.unwrap();
            fixture.freed("k", SECOND).await;
        }
    }
}

/// The call panics after 10 ms in its caller's poll, or after 250 ms in the task that has taken it over.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_panics_later_lets_waiters_go_on() {
    for fair in [false, true] {
        for time in [10 * MS, 250 * MS] {
            let (fixture, client, backend) = Fixture::with_faulty_backend();
            let acquire = backend.control(Verb::Acquire);
            acquire.hold_before();
            let first = spawned(mutex(&client, fair).lock()).await;
            let next = successor(&client).await;
            pass(time).await;
            acquire.meanwhile(|| panic!("the test lets this call panic"));
            acquire.resume();
            assert_is_an_error(first.await.unwrap());
            served(next).await.unlock().await.unwrap();
            fixture.freed("k", SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_panics_fails_only_one_waiter() {
    for fair in [false, true] {
        for panic in WAYS {
            let (fixture, client, backend) = Fixture::with_faulty_backend();
            let elsewhere = fixture.client().mutex("k").lock().await.unwrap();
            let first = spawned(mutex(&client, fair).lock()).await;
            let next = successor(&client).await;
            panic(&backend.control(Verb::Acquire));
            elsewhere.unlock().await.unwrap();
            assert_is_an_error(tokio::time::timeout(60 * SECOND, first).await.unwrap().unwrap());
            served(next).await.unlock().await.unwrap();
            fixture.freed("k", SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_leaves_its_waiter_to_poll() {
    for panic in WAYS {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        let elsewhere = fixture.client().mutex("k").lock().await.unwrap();
        panic(&backend.control(Verb::Watch));
        let waiting = successor(&client).await;
        elsewhere.unlock().await.unwrap();
        served(waiting).await.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_is_retried() {
    for panic in WAYS {
        let (_, client, backend) = Fixture::with_faulty_backend();
        let guard = client.mutex("k").lock().await.unwrap();
        let waiting = successor(&client).await;
        panic(&backend.control(Verb::Renew));
        assert_is_an_error(guard.verify().await);
        panic(&backend.control(Verb::Renew));
        // The client retries the renewal within 9 s. The waiter gives up only after 10 s.
        pass(9 * SECOND).await;
        assert!(backend.control(Verb::Renew).count() >= 1);
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        served(waiting).await.unlock().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_panics_is_retried() {
    for panic in WAYS {
        for drops in [false, true] {
            let (fixture, client, backend, guard) = Fixture::holding().await;
            let waiting = successor(&client).await;
            panic(&backend.control(Verb::Release));
            if drops {
                drop(guard);
            } else {
                guard.unlock().await.unwrap();
            }
            served(waiting).await.unlock().await.unwrap();
            fixture.freed("k", SECOND).await;
        }
    }
}
