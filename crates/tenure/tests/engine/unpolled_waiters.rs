//! Waiters whose futures are kept but not polled do not block other waiters.

use std::time::Duration;

use crate::faulty_backend::Verb;
use crate::fixture::{Fixture, MS, begun, mutex, queued, served, spawned};

const LIMIT: Duration = Duration::from_millis(200);

#[tokio::test(start_paused = true)]
async fn an_unpolled_first_waiter_delays_others_by_200_ms_at_most() {
    for fair in [false, true] {
        let (fixture, [client]) = Fixture::clients();
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
        // When the unpolled waiter is polled again, it gets the lock.
        let guard = tokio::time::timeout(LIMIT, unpolled).await.unwrap().unwrap();
        assert!(client.mutex("k").try_lock().await.unwrap().is_none());
        guard.unlock().await.unwrap();
        fixture.freed("k", MS).await;
    }
}

/// R16: a future started a call and is not polled again. The client finishes the call, and other waiters go on.
#[tokio::test(start_paused = true)]
async fn an_unpolled_call_does_not_block_other_waiters() {
    for fair in [false, true] {
        let (fixture, client, backend) = Fixture::with_faulty_backend();
        let mutex = mutex(&client, fair);
        backend.control(Verb::Acquire).hold_after();
        let unpolled = begun(mutex.lock()).await;
        let next = spawned(mutex.lock()).await;
        backend.control(Verb::Acquire).resume();
        let before = tokio::time::Instant::now();
        let guard = served(next).await;
        let waited = before.elapsed();
        assert!(waited <= 2 * LIMIT, "fair {fair}: {waited:?}");
        guard.unlock().await.unwrap();
        drop(unpolled);
        fixture.freed("k", LIMIT).await;
    }
}
