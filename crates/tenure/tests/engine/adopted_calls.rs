//! Calls to the store that begin in a poll of the caller's future, and that a task of the client then takes over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt;
use tenure::Error;

use crate::faulty_backend::Verb;
use crate::fixture::{
    Fixture, MS, SECOND, assert_error, begun, mutex, pass, poll_once, runtime, served_within, successor,
    tasks,
};

#[tokio::test(start_paused = true)]
async fn a_call_slower_than_the_offer_window_still_wakes_its_caller() {
    for fair in [false, true] {
        let (_, client, backend) = Fixture::with_faulty_backend();
        let mutex = mutex(&client, fair);
        backend.control(Verb::Acquire).hold_after();
        let lock = tokio::spawn(mutex.lock());
        let tried = tokio::spawn(client.mutex("other").try_lock());
        pass(250 * MS).await;
        backend.control(Verb::Acquire).resume();
        assert!(served_within(SECOND, lock).await.is_held());
        let tried = tokio::time::timeout(SECOND, tried).await;
        assert!(tried.expect("never woken").unwrap().unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn on_waiting_runs_after_the_call_was_adopted() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let _guard = fixture.client().mutex("k").lock().await.unwrap();
    backend.control(Verb::Acquire).hold_after();
    let told = Arc::new(AtomicU32::new(0));
    let tell = told.clone();
    let waiting = client.mutex("k").lock().on_waiting(move |_| {
        tell.fetch_add(1, Ordering::Relaxed);
    });
    let waiting = tokio::spawn(waiting);
    pass(250 * MS).await;
    backend.control(Verb::Acquire).resume();
    pass(SECOND).await;
    assert_eq!(told.load(Ordering::Relaxed), 1);
    waiting.abort();
}

/// While the caller polls its call, `close` gives the call to a task. The call still ends, and the key is freed.
#[tokio::test(start_paused = true)]
async fn a_call_adopted_during_its_last_poll_finishes() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let acquire = backend.control(Verb::Acquire);
    acquire.hold_before();
    let mut lock = begun(Box::pin(client.mutex("k").lock())).await;
    acquire.resume();
    acquire.hold_after();
    acquire.meanwhile(move || assert!(client.close(SECOND).now_or_never().is_none()));
    assert!(poll_once(&mut lock).await.is_none());
    acquire.resume();
    fixture.freed("k", SECOND).await;
    assert_error!(lock.await, Error::Closed(_));
}

#[tokio::test(start_paused = true)]
async fn an_unlock_polls_its_release_within_the_offer_window() {
    let (_, client, backend, guard) = Fixture::holding().await;
    let waiting = successor(&client).await;
    backend.control(Verb::Release).hold_before();
    let unlock = tokio::spawn(guard.unlock());
    let before = tasks();
    pass(99 * MS).await;
    assert_eq!(tasks(), before);
    pass(10 * MS).await;
    assert_eq!(tasks(), before + 1);
    backend.control(Verb::Release).resume();
    let told = tokio::time::timeout(MS, unlock).await;
    told.expect("no notice").unwrap().unwrap();
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_unlock_does_not_block_waiters() {
    let (_, client, backend, guard) = Fixture::holding().await;
    let waiting = successor(&client).await;
    backend.control(Verb::Release).hold_before();
    let unlock = begun(Box::pin(guard.unlock())).await;
    backend.control(Verb::Release).resume();
    assert!(served_within(200 * MS, waiting).await.is_held());
    unlock.await.unwrap();
}

/// While the caller polls its unlock, `close` gives the release to a task. The unlock still ends.
#[tokio::test(start_paused = true)]
async fn an_unlock_adopted_during_its_last_poll_finishes() {
    let (fixture, client, backend, guard) = Fixture::holding().await;
    let waiting = successor(&client).await;
    let release = backend.control(Verb::Release);
    release.hold_before();
    let mut unlock = begun(Box::pin(guard.unlock())).await;
    release.resume();
    release.hold_after();
    release.meanwhile(move || assert!(client.close(SECOND).now_or_never().is_none()));
    assert!(poll_once(&mut unlock).await.is_none());
    release.resume();
    assert_error!(waiting.await.unwrap(), Error::Closed(_));
    fixture.freed("k", SECOND).await;
    unlock.await.unwrap();
}

#[test]
fn an_unlock_ends_when_the_clients_runtime_ends() {
    for taken_over in [false, true] {
        let (first, second) = (runtime(), runtime());
        let (_, client, backend, guard) = first.block_on(Fixture::holding());
        let _waiting = first.block_on(successor(&client));
        backend.control(Verb::Release).hold_before();
        let unlock = second.block_on(begun(Box::pin(guard.unlock())));
        if taken_over {
            drop(second.block_on(begun(Box::pin(client.close(SECOND)))));
        }
        first.shutdown_timeout(10 * SECOND);
        let told = second.block_on(async { tokio::time::timeout(10 * SECOND, unlock).await });
        assert!(
            matches!(told.expect("the unlock never ends"), Err(Error::Closed(_))),
            "the outcome is unknown"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn closing_during_a_poll_of_a_call_wakes_its_caller() {
    let (fixture, client, backend) = Fixture::with_faulty_backend();
    let acquire = backend.control(Verb::Acquire);
    acquire.hold_before();
    let lock = tokio::spawn(client.mutex("k").lock());
    crate::fixture::settle().await;
    acquire.hold_after();
    acquire.meanwhile(move || assert!(client.close(SECOND).now_or_never().is_none()));
    acquire.resume();
    acquire.hold_after();
    crate::fixture::settle().await;
    acquire.resume();
    fixture.freed("k", SECOND).await;
    let ended = tokio::time::timeout(10 * SECOND, lock).await;
    assert_error!(
        ended.expect("the caller is never woken").unwrap(),
        Error::Closed(_)
    );
}

#[test]
fn an_unlock_without_waiters_ends_with_the_clients_runtime() {
    let (first, second) = (runtime(), runtime());
    let (_, _client, backend, guard) = first.block_on(Fixture::holding());
    backend.control(Verb::Release).hold_before();
    let unlock = second.block_on(begun(Box::pin(guard.unlock())));
    first.shutdown_timeout(10 * SECOND);
    let told = second.block_on(async { tokio::time::timeout(15 * SECOND, unlock).await });
    assert!(
        matches!(told.expect("the unlock never ends"), Err(Error::Closed(_))),
        "the outcome is unknown"
    );
}
