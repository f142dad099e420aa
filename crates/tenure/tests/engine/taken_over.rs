//! Calls and releases that their callers poll in place, and that the client's own task takes over from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tenure::Error;

use crate::stage::Verb;
use crate::world::{MS, SECOND, World, heir, mutex, pass, poll_once, tasks};

#[tokio::test(start_paused = true)]
async fn a_call_slower_than_the_offer_window_still_wakes_its_caller() {
    for fair in [false, true] {
        let world = World::new();
        let (client, stage) = world.staged();
        let mutex = mutex(&client, fair);
        stage.act(Verb::Acquire).hold_after();
        let lock = tokio::spawn(mutex.lock());
        let tried = tokio::spawn(client.mutex("other").try_lock());
        pass(250 * MS).await;
        stage.act(Verb::Acquire).go_on();
        let guard = tokio::time::timeout(SECOND, lock)
            .await
            .expect("never woken")
            .unwrap()
            .unwrap();
        assert!(guard.is_held());
        assert!(
            tokio::time::timeout(SECOND, tried)
                .await
                .expect("never woken")
                .unwrap()
                .unwrap()
                .is_some()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_also_after_its_call_was_taken_over() {
    let world = World::new();
    let (client, stage) = world.staged();
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
    let world = World::new();
    let (client, stage) = world.staged();
    let acquire = stage.act(Verb::Acquire);
    acquire.hold_before();
    let mut lock = Box::pin(client.mutex("k").lock());
    assert!(poll_once(&mut lock).await.is_none());
    acquire.go_on();
    acquire.hold_after();
    acquire.meanwhile(move || assert!(client.close(SECOND).now_or_never().is_none()));
    assert!(poll_once(&mut lock).await.is_none());
    acquire.go_on();
    world.freed("k", SECOND).await;
    assert!(matches!(lock.await, Err(Error::Closed(_))));
}

#[tokio::test(start_paused = true)]
async fn an_unlock_polls_its_release_itself_until_the_offer_window_is_over() {
    let world = World::new();
    let (client, stage, guard) = world.held().await;
    let waiting = heir(&client).await;
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
    let world = World::new();
    let (client, stage, guard) = world.held().await;
    let waiting = heir(&client).await;
    stage.act(Verb::Release).hold_before();
    let mut unlock = Box::pin(guard.unlock());
    assert!(poll_once(&mut unlock).await.is_none());
    stage.act(Verb::Release).go_on();
    let next = tokio::time::timeout(200 * MS, waiting)
        .await
        .expect("stranded")
        .unwrap()
        .unwrap();
    assert!(next.is_held());
    unlock.await.unwrap();
}

/// The watchdog comes for a release while it is polled, and does not come again.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_taken_over_in_its_last_poll_goes_on_behind() {
    let world = World::new();
    let (client, stage, guard) = world.held().await;
    let waiting = heir(&client).await;
    let release = stage.act(Verb::Release);
    release.hold_before();
    let mut unlock = Box::pin(guard.unlock());
    assert!(poll_once(&mut unlock).await.is_none());
    release.go_on();
    release.hold_after();
    release.meanwhile(move || assert!(client.close(SECOND).now_or_never().is_none()));
    assert!(poll_once(&mut unlock).await.is_none());
    release.go_on();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed(_))));
    world.freed("k", SECOND).await;
    unlock.await.unwrap();
}

#[test]
fn an_unlock_on_another_runtime_is_told_when_the_clients_ends() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    for taken_over in [false, true] {
        let (first, second) = (runtime(), runtime());
        let world = World::new();
        let (client, stage, guard) = first.block_on(world.held());
        let _waiting = first.block_on(heir(&client));
        stage.act(Verb::Release).hold_before();
        let mut unlock = Box::pin(guard.unlock());
        assert!(second.block_on(poll_once(&mut unlock)).is_none());
        if taken_over {
            assert!(
                second
                    .block_on(async { client.close(SECOND).now_or_never() })
                    .is_none()
            );
        }
        first.shutdown_timeout(Duration::from_secs(10));
        let told = second.block_on(async { tokio::time::timeout(Duration::from_secs(10), unlock).await });
        assert!(told.expect("stranded").is_err(), "nobody knows");
    }
}
