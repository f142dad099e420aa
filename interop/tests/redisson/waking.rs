//! An unlock by Java wakes Tenure's waiters, and the reverse: no waiter sleeps for a whole lease.

use std::time::{Duration, Instant};

use tenure_interop::Driver;
use tokio::task::JoinSet;

use crate::fixture::{Fixture, LIMIT, PROMPT, within};

#[tokio::test]
async fn dropping_a_tenure_guard_wakes_a_waiting_java_thread() {
    for fixture in Fixture::each().await {
        let java = fixture.java_plain("anna");
        let guard = fixture.mutex().lock().await.unwrap();
        let waiting = java.lock();
        fixture.until_listening("k", 1).await;
        drop(guard);
        within(PROMPT, "the lock", waiting).await.unwrap();
    }
}

#[tokio::test]
async fn many_waiters_of_both_sides_all_get_their_turn_soon() {
    const EACH: usize = 16;
    for fixture in Fixture::each().await {
        let holder = fixture.another_client().await;
        let guard = holder.mutex("k").lock().await.unwrap();
        let mut waiters = JoinSet::new();
        for waiter in 1..=EACH {
            let java = fixture.java_plain(&format!("thread-{waiter}"));
            waiters.spawn(async move {
                java.lock().await.unwrap();
                java.unlock().await.unwrap();
            });
            let java = fixture.java_plain(&waiter.to_string());
            waiters.spawn(async move {
                java.lock_async().await.unwrap();
                java.unlock_async().await.unwrap();
            });
            let mutex = fixture.mutex();
            waiters.spawn(async move { mutex.lock().await.unwrap().unlock().await.unwrap() });
        }
        fixture.until_listening("k", 2).await;
        guard.unlock().await.unwrap();
        within(Duration::from_secs(15), "every turn", waiters.join_all()).await;
        fixture.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_hand_over_does_not_starve_a_java_thread() {
    let Some(fixture) = Fixture::new(Driver::Redisson).await else {
        return;
    };
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let mutex = fixture.mutex();
        tasks.spawn(async move {
            loop {
                mutex.lock().await.unwrap().unlock().await.unwrap();
            }
        });
    }
    let turns = fixture.java_plain("anna").count("counter", 20);
    let longest = within(LIMIT, "its turns", turns).await.unwrap();
    assert!(longest < 5_000, "{longest} ms");
    tasks.shutdown().await;
}

/// Java's `tryLock()` never waits, so the client that holds the key cannot know that Java wants it.
#[tokio::test]
async fn local_hand_over_does_not_starve_java_try_lock() {
    for fixture in Fixture::each().await {
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let mutex = fixture.mutex();
            tasks.spawn(async move {
                loop {
                    let guard = mutex.lock().await.unwrap();
                    // sleep: the work under the lock.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    guard.unlock().await.unwrap();
                }
            });
        }
        let java = fixture.java_plain("anna");
        let (started, mut turns) = (Instant::now(), 0);
        while turns < 2 && started.elapsed() < LIMIT {
            if java.try_lock().await.unwrap() {
                turns += 1;
                java.unlock().await.unwrap();
            }
        }
        assert_eq!(turns, 2, "in {LIMIT:?}");
        tasks.shutdown().await;
    }
}
