//! Waiters that are alive and not polled: they must not stand in anybody's way.

use std::time::Duration;

use tenure::{Client, Mutex};

use crate::stage::Verb;
use crate::world::{MS, World, mutex, pass, poll_once, served, settle};

const LIMIT: Duration = Duration::from_millis(200);

async fn ten_waiters_behind_an_unpolled_one(world: &World, client: &Client, mutex: Mutex) {
    let guard = mutex.lock().await.unwrap();
    let mut unpolled = mutex.lock();
    assert!(poll_once(&mut unpolled).await.is_none());
    settle().await;
    let mut waiters = Vec::new();
    for _ in 0..10 {
        waiters.push(tokio::spawn(mutex.lock()));
        settle().await;
    }
    let before = tokio::time::Instant::now();
    guard.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap().unlock().await.unwrap();
    }
    assert!(before.elapsed() <= LIMIT, "{:?}", before.elapsed());
    // It is not forgotten: polled again, it gets its turn.
    let guard = tokio::time::timeout(LIMIT, unpolled).await.unwrap().unwrap();
    assert!(client.mutex("k").try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    world.freed("k", MS).await;
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_waiter_at_the_head_stalls_ten_others_at_most_200_ms() {
    let world = World::new();
    let client = world.client();
    ten_waiters_behind_an_unpolled_one(&world, &client, client.mutex("k")).await;
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_fair_waiter_at_the_head_stalls_ten_others_at_most_200_ms() {
    let world = World::new();
    let client = world.client();
    ten_waiters_behind_an_unpolled_one(&world, &client, client.mutex("k").fair()).await;
}

/// A call under way belongs to the client, not to the future that began it.
#[tokio::test(start_paused = true)]
async fn a_caller_that_stops_polling_its_call_does_not_hold_up_who_comes_after() {
    for fair in [false, true] {
        let world = World::new();
        let (client, stage) = world.staged();
        let mutex = mutex(&client, fair);
        stage.act(Verb::Acquire).hold_after();
        let mut unpolled = mutex.lock();
        assert!(poll_once(&mut unpolled).await.is_none());
        let next = tokio::spawn(mutex.lock());
        settle().await;
        stage.act(Verb::Acquire).go_on();
        let before = tokio::time::Instant::now();
        let guard = served(next).await;
        assert!(
            before.elapsed() <= 2 * LIMIT,
            "fair {fair}: {:?}",
            before.elapsed()
        );
        guard.unlock().await.unwrap();
        drop(unpolled);
        world.freed("k", LIMIT).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_waiter_is_passed_over_only_once_and_waits_elsewhere_too() {
    let world = World::new();
    let (here, elsewhere) = (world.client(), world.client());
    let guard = here.mutex("k").lock().await.unwrap();
    let mut unpolled = elsewhere.mutex("k").lock();
    assert!(poll_once(&mut unpolled).await.is_none());
    settle().await;
    guard.unlock().await.unwrap();
    pass(300 * MS).await;
    let before = tokio::time::Instant::now();
    for _ in 0..10 {
        here.mutex("k").lock().await.unwrap().unlock().await.unwrap();
        // Whoever acts for the other client has its chance.
        settle().await;
    }
    assert!(
        before.elapsed() <= 20 * MS,
        "passed over without further ado: {:?}",
        before.elapsed()
    );
    drop(unpolled);
    world.freed("k", LIMIT).await;
}

#[tokio::test(start_paused = true)]
async fn while_this_client_holds_the_key_nobody_asks_the_store_for_it() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = world.client().mutex("k").lock().await.unwrap();
    let waiting = tokio::spawn(client.mutex("k").lock());
    settle().await;
    guard.unlock().await.unwrap();
    // Before whoever asks for the waiter has looked.
    let overtaken = client.mutex("k").try_lock().await.unwrap().expect("it is free");
    settle().await;
    let asked = stage.act(Verb::Acquire).count();
    pass(Duration::from_secs(300)).await;
    assert_eq!(stage.act(Verb::Acquire).count(), asked);
    overtaken.unlock().await.unwrap();
    served(waiting).await.unlock().await.unwrap();
}
