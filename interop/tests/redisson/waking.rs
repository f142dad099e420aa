//! A waiter is told when the other side unlocks: nobody polls for a lease.

use std::time::{Duration, Instant};

use tenure_interop::redisson::Version;
use tokio::task::JoinSet;

use crate::scene::{LIMIT, PROMPT, Scene, within};

/// How soon a waiter has the lock, for the most part.
const SOON: Duration = Duration::from_millis(200);

const ROUNDS: usize = 9;

/// The middle one of all waits.
fn median(mut waits: Vec<Duration>) -> Duration {
    waits.sort();
    waits[waits.len() / 2]
}

#[tokio::test]
async fn a_waiting_java_thread_is_woken_by_an_unlock_of_tenure() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let client = scene.tenure().await;
        let mut waits = Vec::new();
        for _ in 0..ROUNDS {
            let guard = client.mutex("k").lock().await.unwrap();
            let waiting = java.lock();
            scene.until_listening("k", 1).await;
            guard.unlock().await.unwrap();
            let (locked, waited) = within(PROMPT, "the lock", waiting).await;
            locked.unwrap();
            waits.push(waited);
            java.unlock().await.unwrap();
            scene.until_listening("k", 0).await;
        }
        assert!(median(waits.clone()) < SOON, "{waits:?}");
    }
}

#[tokio::test]
async fn a_waiting_java_thread_is_woken_when_a_guard_of_tenure_is_dropped() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let client = scene.tenure().await;
        let guard = client.mutex("k").lock().await.unwrap();
        let waiting = java.lock();
        scene.until_listening("k", 1).await;
        drop(guard);
        within(PROMPT, "the lock", waiting).await.0.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_of_tenure_is_woken_by_an_unlock_of_java() {
    for scene in Scene::each().await {
        let java = scene.java.owner("anna").plain("k");
        let client = scene.tenure().await;
        let mut waits = Vec::new();
        for _ in 0..ROUNDS {
            java.lock().await.unwrap();
            let waiting = tokio::spawn(client.mutex("k").lock());
            scene.until_listening("k", 1).await;
            java.unlock().await.unwrap();
            let (guard, waited) = within(PROMPT, "the lock", waiting).await;
            waits.push(waited);
            guard.unwrap().unwrap().unlock().await.unwrap();
            scene.until_listening("k", 0).await;
        }
        assert!(median(waits.clone()) < SOON, "{waits:?}");
    }
}

#[tokio::test]
async fn many_waiters_of_both_sides_all_get_their_turn_soon() {
    const EACH: usize = 16;
    for scene in Scene::each().await {
        let (holder, client) = (scene.tenure().await, scene.tenure().await);
        let guard = holder.mutex("k").lock().await.unwrap();
        let mut waiters = JoinSet::new();
        for waiter in 1..=EACH {
            let java = scene.java.owner(&format!("thread-{waiter}")).plain("k");
            waiters.spawn(async move {
                java.lock().await.unwrap();
                java.unlock().await.unwrap();
            });
            let java = scene.java.owner(&waiter.to_string()).plain("k");
            waiters.spawn(async move {
                java.lock_async().await.unwrap();
                java.unlock_async().await.unwrap();
            });
            let mutex = client.mutex("k");
            waiters.spawn(async move { mutex.lock().await.unwrap().unlock().await.unwrap() });
        }
        scene.until_listening("k", 2).await;
        guard.unlock().await.unwrap();
        let (_, took) = within(LIMIT, "every turn", waiters.join_all()).await;
        assert!(took < Duration::from_secs(3), "a waiter was not told: {took:?}");
        scene.until_nothing_is_left_of("k").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_java_thread_is_not_starved_by_a_client_that_passes_the_lock_on() {
    const TURNS: u32 = 20;
    let Some(scene) = Scene::new(Version::Newest).await else {
        return;
    };
    let client = scene.tenure().await;
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let mutex = client.mutex("k");
        tasks.spawn(async move {
            loop {
                mutex.lock().await.unwrap().unlock().await.unwrap();
            }
        });
    }
    let asked = Instant::now();
    let turns = scene.java.owner("anna").plain("k").count("counter", TURNS);
    let (longest, took) = within(LIMIT, "its turns", turns).await;
    let longest = longest.unwrap();
    assert!(longest < 1_000, "{longest} ms, {TURNS} turns in {took:?}");
    assert!(asked.elapsed() < LIMIT);
    tasks.shutdown().await;
}

/// Java's `tryLock()` never waits, so nobody hears of it.
#[tokio::test]
async fn a_java_thread_that_only_tries_gets_its_turn_beside_tasks_that_hand_the_lock_on() {
    for scene in Scene::each().await {
        let client = scene.tenure().await;
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let mutex = client.mutex("k");
            tasks.spawn(async move {
                loop {
                    let guard = mutex.lock().await.unwrap();
                    // sleep: the work.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    guard.unlock().await.unwrap();
                }
            });
        }
        let java = scene.java.owner("anna").plain("k");
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
