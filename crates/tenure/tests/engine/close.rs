//! Closing a client, and dropping one without closing it.

use futures_util::poll;
use tenure::{Error, LostCause, Settings};

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, MS, SECOND, assert_error, runtime, settle};

#[tokio::test(start_paused = true)]
async fn close_releases_every_lock_and_refuses_new_ones() {
    let (fixture, [client, other]) = Fixture::clients();
    let guard = client.mutex("held").lock().await.unwrap();
    let busy = other.mutex("busy").lock().await.unwrap();
    let waiters = [client.mutex("busy"), client.mutex("busy").fair()].map(|mutex| tokio::spawn(mutex.lock()));
    drop(client.mutex("dropped").lock().await.unwrap());
    settle().await;
    client.close(SECOND).await.unwrap();
    assert_eq!(guard.loss().unwrap().cause, LostCause::Closed);
    for waiter in waiters {
        assert_error!(waiter.await.unwrap(), Error::Closed(_));
    }
    assert!(fixture.is_free("held").await && fixture.is_free("dropped").await);
    assert_eq!(fixture.queue("busy").await.len(), 0);
    assert_error!(client.mutex("k").lock().await, Error::Closed(_));
    assert_error!(client.mutex("k").try_lock().await, Error::Closed(_));
    drop(guard);
    busy.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn close_waits_no_longer_than_its_limit() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.control(Verb::Release).hold_before();
    drop(guard);
    let before = tokio::time::Instant::now();
    assert_error!(client.close(SECOND).await, Error::CloseTimeout(None));
    assert!(before.elapsed() < SECOND + 50 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_closed_client_names_the_reason_of_a_refused_release() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let [kept, other] = ["k", "l"].map(|key| client.mutex(key).lock());
    let (kept, other) = (kept.await.unwrap(), other.await.unwrap());
    let release = backend.control(Verb::Release);
    release.fail_before(1);
    other.unlock().await.unwrap();
    release.fail_before(usize::MAX);
    drop(kept);
    let error = client.close(SECOND).await.expect_err("nothing is released");
    assert!(matches!(error, Error::CloseTimeout(Some(_))), "{error:?}");
    assert!(error.to_string().contains("lets this call fail"), "{error}");
}

/// A failure that was followed by a success is not the reason why a later release is not answered.
#[tokio::test(start_paused = true)]
async fn a_closed_client_names_no_reason_of_the_past() {
    let (_, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    let release = backend.control(Verb::Release);
    release.fail_before(2);
    guard.unlock().await.unwrap();
    drop(client.mutex("l").lock().await.unwrap());
    release.hold_before();
    assert_error!(client.close(SECOND).await, Error::CloseTimeout(None));
}

#[tokio::test(start_paused = true)]
async fn close_finishes_an_unlock_that_is_not_polled() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let guard = client.mutex("k").lock().await.unwrap();
    backend.control(Verb::Release).hold_before();
    let mut unlocking = Box::pin(guard.unlock());
    assert!(poll!(&mut unlocking).is_pending());
    let closing = tokio::spawn(async move { client.close(SECOND).await });
    settle().await;
    assert!(!closing.is_finished(), "it waits for the release");
    backend.control(Verb::Release).resume();
    closing.await.unwrap().unwrap();
    assert!(fixture.is_free("k").await);
    unlocking.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_dropped_after_its_guards_releases_them() {
    let (fixture, [client]) = Fixture::clients();
    let guard = client.mutex("k").lock().await.unwrap();
    drop(client);
    assert!(guard.is_held(), "a guard keeps its client alive");
    drop(guard);
    fixture.freed("k", MS).await;
}

#[test]
fn own_thread_renews_while_the_runtime_is_blocked() {
    runtime().block_on(async {
        let settings = Settings::default().own_thread(true).lease(3 * SECOND);
        let client = tenure::connect_with("memory:", settings).await.unwrap();
        let guard = client.mutex("k").lock().await.unwrap();
        // sleep: blocks the runtime's only thread for longer than the lease.
        std::thread::sleep(4 * SECOND);
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        client.close(SECOND).await.unwrap();
    });
}

#[test]
fn without_a_runtime_the_error_names_the_fix() {
    let client = runtime().block_on(tenure::connect("memory:")).unwrap();
    let locked = futures_util::FutureExt::now_or_never(client.mutex("k").lock()).unwrap();
    assert!(matches!(locked, Err(Error::Closed(why)) if why.contains("runtime")));
}
