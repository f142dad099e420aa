//! Counts to prove mutual exclusion: Java and Tenure increment a number by reading and then writing it. Two holders at a
//! time would lose an increment.

use tokio::task::JoinSet;

use crate::fixture::{Fixture, LIMIT, Register, within};

/// Runs three Java threads, and two tasks of each of two Tenure clients. Each of the seven increments `turns` times.
async fn count(fixture: &Fixture, fair: bool, turns: u32) {
    let java = ["anna", "berta", "clara"].map(|name| {
        let lock = if fair {
            fixture.java_fair(name)
        } else {
            fixture.java_plain(name)
        };
        lock.count("counter", turns)
    });
    let mut tenure = JoinSet::new();
    for client in [fixture.another_client().await, fixture.another_client().await] {
        for _ in 0..2 {
            let mutex = client.mutex("k");
            let mutex = if fair { mutex.fair() } else { mutex };
            let mut counter = Register::open(fixture, "counter").await;
            tenure.spawn(async move {
                for _ in 0..turns {
                    let guard = mutex.lock().await.unwrap();
                    counter.raise().await;
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    within(LIMIT, "all turns of Tenure", tenure.join_all()).await;
    for turns in java {
        within(LIMIT, "all turns of Java", turns).await.unwrap();
    }
    assert_eq!(fixture.ask("GET counter"), (7 * turns).to_string());
    fixture.until_nothing_is_left_of("k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_increment_is_lost_with_fair_or_unfair_locks() {
    for fixture in Fixture::each().await {
        count(&fixture, false, 300).await;
        fixture.ask("DEL counter");
        count(&fixture, true, 60).await;
    }
}
