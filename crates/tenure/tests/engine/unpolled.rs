//! Waiters that are alive and not polled: they must not stand in anybody's way.

use std::time::Duration;

use crate::stage::Verb;
use crate::world::{MS, World, begun, mutex, pass, queued, served, settle, spawned};

const LIMIT: Duration = Duration::from_millis(200);

#[tokio::test(start_paused = true)]
async fn an_unpolled_waiter_at_the_head_stalls_ten_others_at_most_200_ms() {
    for fair in [false, true] {
        let (world, [client]) = World::clients();
        let mutex = mutex(&client, fair);
        let guard = mutex.lock().await.unwrap();
        let unpolled = queued(mutex.lock()).await;
        let mut waiters = Vec::new();
        for _ in 0..10 {
            waiters.push(spawned(mutex.lock()).await);
        }
        let before = tokio::time::Instant::now();
        guard.unlock().await.unwrap();
        for waiter in waiters {
            served(waiter).await.unlock().await.unwrap();
        }
        let waited = before.elapsed();
        assert!(waited <= LIMIT, "fair {fair}: {waited:?}");
        // It is not forgotten: polled again, it gets its turn.
        let guard = tokio::time::timeout(LIMIT, unpolled).await.unwrap().unwrap();
        assert!(client.mutex("k").try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        world.freed("k", MS).await;
    }
}

/// R16: a call under way belongs to the client, not to the future that began it.
#[tokio::test(start_paused = true)]
async fn a_call_that_its_caller_stops_polling_strands_nobody() {
    for fair in [false, true] {
        let (world, client, stage) = World::with_stage();
        let mutex = mutex(&client, fair);
        stage.act(Verb::Acquire).hold_after();
        let unpolled = begun(mutex.lock()).await;
        let next = spawned(mutex.lock()).await;
        stage.act(Verb::Acquire).go_on();
        let before = tokio::time::Instant::now();
        let guard = served(next).await;
        let waited = before.elapsed();
        assert!(waited <= 2 * LIMIT, "fair {fair}: {waited:?}");
        guard.unlock().await.unwrap();
        drop(unpolled);
        world.freed("k", LIMIT).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_waiter_is_passed_over_only_once_and_waits_elsewhere_too() {
    let (world, [here, elsewhere]) = World::clients();
    let guard = here.mutex("k").lock().await.unwrap();
    let unpolled = queued(elsewhere.mutex("k").lock()).await;
    guard.unlock().await.unwrap();
    pass(300 * MS).await;
    let before = tokio::time::Instant::now();
    for _ in 0..10 {
        here.mutex("k").lock().await.unwrap().unlock().await.unwrap();
        // Whoever acts for the other client has its chance.
        settle().await;
    }
    let took = before.elapsed();
    assert!(took <= 20 * MS, "passed over without further ado: {took:?}");
    drop(unpolled);
    world.freed("k", LIMIT).await;
}

#[tokio::test(start_paused = true)]
async fn while_this_client_holds_the_key_nobody_asks_the_store_for_it() {
    let (world, client, stage) = World::with_stage();
    let guard = world.client().mutex("k").lock().await.unwrap();
    let waiting = spawned(client.mutex("k").lock()).await;
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
