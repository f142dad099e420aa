//! Calls and releases that their callers poll in place, and that the client's own task takes over from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt;
use tenure::Error;

use crate::stage::Verb;
use crate::world::{
    MS, SECOND, World, assert_error, begun, mutex, pass, poll_once, runtime, served_within, successor, tasks,
};

#[tokio::test(start_paused = true)]
async fn a_call_slower_than_the_offer_window_still_wakes_its_caller() {
    for fair in [false, true] {
        let (_, client, stage) = World::with_stage();
        let mutex = mutex(&client, fair);
        stage.act(Verb::Acquire).hold_after();
        let lock = tokio::spawn(mutex.lock());
        let tried = tokio::spawn(client.mutex("other").try_lock());
        pass(250 * MS).await;
        stage.act(Verb::Acquire).go_on();
        assert!(served_within(SECOND, lock).await.is_held());
        let tried = tokio::time::timeout(SECOND, tried).await;
        assert!(tried.expect("never woken").unwrap().unwrap().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_also_after_its_call_was_taken_over() {
    let (world, client, stage) = World::with_stage();
    let _guard = world.client().mutex("k").lock().await.unwrap();
    stage.act(Verb::Acquire).hold_after();
    let told = Arc::new(AtomicU32::new(0));
    let tell = told.clone();
    let waiting = client.mutex("k").lock().on_waiting(move |_| {
        tell.fetch_add(1, Ordering::Relaxed);
    });
    let waiting = tokio::spawn(waiting);
    pass(250 * MS).await;
    stage.act(Verb::Acquire).go_on();
    pass(SECOND).await;
    assert_eq!(told.load(Ordering::Relaxed), 1);
    waiting.abort();
}

/// The watchdog comes for a call while it is polled, and does not come again.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_taken_over_in_its_last_poll_goes_on_behind() {
    let (world, client, stage) = World::with_stage();
    let acquire = stage.act(Verb::Acquire);
    acquire.hold_before();
    let mut lock = begun(Box::pin(client.mutex("k").lock())).await;
    acquire.go_on();
    acquire.hold_after();
    acquire.meanwhile(move || assert!(client.close(SECOND).now_or_never().is_none()));
    assert!(poll_once(&mut lock).await.is_none());
    acquire.go_on();
    world.freed("k", SECOND).await;
    assert_error!(lock.await, Error::Closed(_));
}

#[tokio::test(start_paused = true)]
async fn an_unlock_polls_its_release_itself_until_the_offer_window_is_over() {
    let (_, client, stage, guard) = World::held().await;
    let waiting = successor(&client).await;
    stage.act(Verb::Release).hold_before();
    let unlock = tokio::spawn(guard.unlock());
    let before = tasks();
    pass(99 * MS).await;
    assert_eq!(tasks(), before);
    pass(10 * MS).await;
    assert_eq!(tasks(), before + 1);
    stage.act(Verb::Release).go_on();
    let told = tokio::time::timeout(MS, unlock).await;
    told.expect("not told").unwrap().unwrap();
    assert!(waiting.await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_not_polled_does_not_strand_who_waits() {
    let (_, client, stage, guard) = World::held().await;
    let waiting = successor(&client).await;
    stage.act(Verb::Release).hold_before();
    let unlock = begun(Box::pin(guard.unlock())).await;
    stage.act(Verb::Release).go_on();
    assert!(served_within(200 * MS, waiting).await.is_held());
    unlock.await.unwrap();
}

/// The watchdog comes for a release while it is polled, and does not come again.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_taken_over_in_its_last_poll_goes_on_behind() {
    let (world, client, stage, guard) = World::held().await;
    let waiting = successor(&client).await;
    let release = stage.act(Verb::Release);
    release.hold_before();
    let mut unlock = begun(Box::pin(guard.unlock())).await;
    release.go_on();
    release.hold_after();
    release.meanwhile(move || assert!(client.close(SECOND).now_or_never().is_none()));
    assert!(poll_once(&mut unlock).await.is_none());
    release.go_on();
    assert_error!(waiting.await.unwrap(), Error::Closed(_));
    world.freed("k", SECOND).await;
    unlock.await.unwrap();
}

#[test]
fn an_unlock_on_another_runtime_is_told_when_the_clients_ends() {
    for taken_over in [false, true] {
        let (first, second) = (runtime(), runtime());
        let (_, client, stage, guard) = first.block_on(World::held());
        let _waiting = first.block_on(successor(&client));
        stage.act(Verb::Release).hold_before();
        let unlock = second.block_on(begun(Box::pin(guard.unlock())));
        if taken_over {
            drop(second.block_on(begun(Box::pin(client.close(SECOND)))));
        }
        first.shutdown_timeout(10 * SECOND);
        let told = second.block_on(async { tokio::time::timeout(10 * SECOND, unlock).await });
        assert!(told.expect("stranded").is_err(), "nobody knows");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_during_a_poll_of_a_call_wakes_its_caller() {
    let (world, client, stage) = World::with_stage();
    let acquire = stage.act(Verb::Acquire);
    acquire.hold_before();
    let lock = tokio::spawn(client.mutex("k").lock());
    crate::world::settle().await;
    acquire.hold_after();
    acquire.meanwhile(move || assert!(client.close(SECOND).now_or_never().is_none()));
    acquire.go_on();
    acquire.hold_after();
    crate::world::settle().await;
    acquire.go_on();
    world.freed("k", SECOND).await;
    let ended = tokio::time::timeout(10 * SECOND, lock).await;
    assert_error!(
        ended.expect("the caller is never woken").unwrap(),
        Error::Closed(_)
    );
}

#[test]
fn an_unlock_for_no_waiter_ends_when_the_clients_runtime_does() {
    let (first, second) = (runtime(), runtime());
    let (_, _client, stage, guard) = first.block_on(World::held());
    stage.act(Verb::Release).hold_before();
    let unlock = second.block_on(begun(Box::pin(guard.unlock())));
    first.shutdown_timeout(10 * SECOND);
    let told = second.block_on(async { tokio::time::timeout(15 * SECOND, unlock).await });
    assert!(told.expect("stranded").is_err(), "nobody knows");
}
