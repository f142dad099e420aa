//! The data that Redisson writes to Redis, step by step; Tenure writes the same format. If a Redisson release changes
//! the format, these tests fail.

use std::time::Duration;

use tenure_interop::Driver;

use crate::fixture::{Fixture, LEASE, MOMENT, PROMPT, is_still_waiting_after, within};

const QUEUE: &str = "redisson_lock_queue:{k}";
const TIMEOUT: &str = "redisson_lock_timeout:{k}";

/// Checks that the remaining time of a key is nearly `lease`.
fn assert_lease(fixture: &Fixture, key: &str, lease: Duration) {
    let left: u128 = fixture.ask(&format!("PTTL {key}")).parse().unwrap();
    let whole = lease.as_millis();
    assert!((whole - 2_000..=whole).contains(&left), "{left} ms");
}

#[tokio::test]
async fn a_mutex_is_a_hash_with_holder_and_hold_count() {
    for fixture in Fixture::each().await {
        let anna = fixture.java.owner("anna");
        let (id, lock) = (anna.id().await.unwrap(), anna.plain("k"));
        lock.lock().await.unwrap();
        assert_eq!(fixture.ask("KEYS *"), "k");
        assert_eq!(fixture.ask("HGETALL k"), format!("{id}\n1"));
        assert_lease(&fixture, "k", LEASE);
        lock.lock().await.unwrap();
        assert_eq!(fixture.ask("HGETALL k"), format!("{id}\n2"));
        lock.unlock().await.unwrap();
        assert_eq!(fixture.ask("HGETALL k"), format!("{id}\n1"));
        lock.unlock().await.unwrap();
        fixture.until("KEYS *", str::is_empty).await;
        lock.lock_for(Duration::from_secs(5)).await.unwrap();
        assert_lease(&fixture, "k", Duration::from_secs(5));
    }
}

#[tokio::test]
async fn fair_waiters_are_in_a_list_and_a_sorted_set() {
    for fixture in Fixture::each().await {
        let [anna, berta, clara] = ["anna", "berta", "clara"].map(|name| fixture.java.owner(name));
        anna.fair("k").lock().await.unwrap();
        assert_eq!(fixture.ask("KEYS *"), "k");
        let second = berta.fair("k").lock();
        fixture.until_queued("k", 1).await;
        let third = clara.fair("k").try_within(Duration::from_secs(600));
        fixture.until_queued("k", 2).await;
        let (b, c) = (queued(&fixture, 0), queued(&fixture, 1));
        let score = |id: &str| -> i64 { fixture.ask(&format!("ZSCORE {TIMEOUT} {id}")).parse().unwrap() };
        let before = (score(&b), score(&c));
        assert_eq!(before.1 - before.0, 600_000, "the time that it waits at most");
        for key in [QUEUE, TIMEOUT] {
            assert_eq!(fixture.ask(&format!("PTTL {key}")), "-1");
        }
        anna.fair("k").unlock().await.unwrap();
        second.await.unwrap();
        assert_eq!(fixture.ask("HGETALL k"), format!("{b}\n1"));
        assert_eq!(before.1 - score(&c), 300_000, "the new holder's share goes");
        berta.fair("k").unlock().await.unwrap();
        assert!(third.await.unwrap());
        clara.fair("k").unlock().await.unwrap();
        fixture.until("KEYS *", str::is_empty).await;
        fixture.until("PUBSUB CHANNELS", str::is_empty).await;
    }
}

/// The owner name of the waiter at that position of the queue.
fn queued(fixture: &Fixture, place: usize) -> String {
    fixture.ask(&format!("LINDEX {QUEUE} {place}"))
}

#[tokio::test]
async fn fair_and_plain_locks_of_one_name_ignore_each_others_waiters() {
    for fixture in Fixture::each().await {
        let [anna, berta, clara] = ["anna", "berta", "clara"].map(|name| fixture.java.owner(name));
        anna.fair("k").lock_for(PROMPT).await.unwrap();
        let mut unfair = berta.plain("k").lock();
        fixture.until_listening("k", 1).await;
        anna.fair("k").unlock().await.unwrap();
        assert!(
            is_still_waiting_after(MOMENT, &mut unfair).await,
            "no wake-up comes"
        );
        within(PROMPT * 2, "the end of the lease", unfair).await.unwrap();
        let interrupted = clara.fair("k").lock();
        fixture.until_queued("k", 1).await;
        clara.fair("k").interrupt().await.unwrap();
        interrupted.await.unwrap_err();
        berta.plain("k").unlock().await.unwrap();
        assert_eq!(
            anna.fair("k").try_lock().await,
            Ok(false),
            "the queue is not empty"
        );
        assert_eq!(
            anna.plain("k").try_lock().await,
            Ok(true),
            "the queue of the fair lock does not matter"
        );
    }
}

#[tokio::test]
async fn unlocking_a_free_fair_lock_throws_nothing() {
    for fixture in Fixture::each().await {
        let anna = fixture.java.owner("anna");
        anna.fair("k").unlock().await.unwrap();
        anna.plain("k").unlock().await.unwrap_err();
    }
}

#[tokio::test]
async fn an_interrupted_java_waiter_stays_in_the_queue() {
    for fixture in Fixture::each().await {
        let lock = |name: &str| fixture.java_fair(name);
        lock("anna").lock().await.unwrap();
        let interrupted = lock("berta").lock();
        fixture.until(&format!("LLEN {QUEUE}"), |n| n == "1").await;
        lock("berta").interrupt().await.unwrap();
        // Any exception is right: its kind depends on whether the thread had already subscribed.
        interrupted.await.unwrap_err();
        assert_eq!(fixture.ask(&format!("LLEN {QUEUE}")), "1");
        lock("anna").unlock().await.unwrap();
        fixture.ask("CONFIG RESETSTAT");
        assert_eq!(lock("clara").try_within(Duration::from_secs(2)).await, Ok(false));
        let calls = scripts_called(&fixture);
        if fixture.java.worker().driver() == Driver::Redisson {
            assert!(calls > 20, "it asks without a pause: {calls}");
        } else {
            assert!(calls < 10, "it sleeps: {calls}");
        }
    }
}

/// Number of scripts run since the statistics were reset.
fn scripts_called(fixture: &Fixture) -> u64 {
    let statistics = fixture.ask("INFO commandstats");
    let counts = statistics.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let script = command.starts_with("eval");
        script.then(|| rest.split(',').next()?.parse::<u64>().ok())?
    });
    counts.sum()
}
