//! Waiters that are alive and not polled: they must not stand in anybody's way.

use std::time::Duration;

use crate::stage::Verb;
use crate::world::{MS, World, begun, mutex, queued, served, spawned};

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
