//! A Redis for each test, with a Redisson and a Tenure client, and helpers that read its data.

use std::time::{Duration, Instant};

use tenure::{Client, Mutex};
use tenure_interop::{Driver, Lock, Peer, Worker};
use tenure_servers::Redis;

/// A time limit that only a failing test reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Time limit for a waiter that was woken, on a machine that is busy with other tests. Without a wake-up it waits for
/// `LEASE`.
pub(crate) const PROMPT: Duration = Duration::from_secs(5);

/// Time that a test waits before it asserts that a waiter still waits.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);

/// Redisson's `lockWatchdogTimeout` and Tenure's lease, the default of both.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Fixture {
    pub(crate) redis: Redis,
    pub(crate) java: Peer,
    pub(crate) client: Client,
}

impl Fixture {
    /// A fixture for each release of Redisson; none if the tests run without Java.
    pub(crate) async fn each() -> Vec<Fixture> {
        let mut fixtures = Vec::new();
        for driver in Driver::REDISSON {
            fixtures.extend(Fixture::new(driver).await);
        }
        fixtures
    }

    /// A fixture with that release; `None` if the tests run without Java.
    pub(crate) async fn new(driver: Driver) -> Option<Fixture> {
        Some(Fixture::in_jvm(&Worker::shared(driver)?, LEASE).await)
    }

    /// A fixture whose Redisson client is in that Java process. `watchdog` is Redisson's lease.
    pub(crate) async fn in_jvm(jvm: &Worker, watchdog: Duration) -> Fixture {
        let redis = Redis::start().unwrap();
        let java = Peer::open(jvm, &redis.url(), watchdog).await.unwrap();
        let client = tenure::connect(&redis.url()).await.unwrap();
        Fixture { redis, java, client }
    }

    pub(crate) async fn another_client(&self) -> Client {
        tenure::connect(&self.redis.url()).await.unwrap()
    }

    /// Tenure's mutex `k`.
    pub(crate) fn mutex(&self) -> Mutex {
        self.client.mutex("k")
    }

    /// The mutex `k`, used by that Java thread.
    pub(crate) fn java_plain(&self, owner: &str) -> Lock {
        self.java.owner(owner).plain("k")
    }

    /// The fair mutex `k`, used by that Java thread.
    pub(crate) fn java_fair(&self, owner: &str) -> Lock {
        self.java.owner(owner).fair("k")
    }

    /// The answer of Redis to a command.
    pub(crate) fn ask(&self, command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        self.redis.ask(&words).unwrap()
    }

    /// Waits until that number of connections have subscribed to the unlocks of a mutex.
    pub(crate) async fn until_listening(&self, key: &str, connections: u32) {
        let channel = format!("redisson_lock__channel:{{{key}}}");
        let expected = format!("{channel}\n{connections}");
        self.until(&format!("PUBSUB NUMSUB {channel}"), |answer| answer == expected)
            .await;
        settled().await;
    }

    /// Waits until a connection has subscribed to the unlocks of at least one lock.
    pub(crate) async fn until_a_connection_listens(&self) {
        self.until("PUBSUB CHANNELS redisson_*", |channels| !channels.is_empty())
            .await;
        settled().await;
    }

    /// Waits until that number of waiters queue for a fair mutex, each with a channel of its own.
    pub(crate) async fn until_queued(&self, key: &str, waiters: usize) {
        self.until(&format!("LLEN redisson_lock_queue:{{{key}}}"), |answer| {
            answer == waiters.to_string()
        })
        .await;
        let channels = format!("PUBSUB CHANNELS redisson_lock__channel:{{{key}}}:*");
        self.until(&channels, |answer| answer.lines().count() == waiters)
            .await;
        settled().await;
    }

    /// Waits until Redis has no data about this key, except Tenure's token counter and the records of its ended claims,
    /// which stay for 12 s.
    pub(crate) async fn until_nothing_is_left_of(&self, key: &str) {
        self.until(&format!("KEYS *{key}*"), |keys| {
            let known = |key: &str| key == "tenure_tokens" || key.starts_with("tenure_claim:");
            keys.lines().all(known)
        })
        .await;
        for record in self.ask("KEYS tenure_claim:*").lines() {
            let left: i64 = self.ask(&format!("PTTL {record}")).parse().unwrap();
            // `PTTL` answers -2 if the record has expired meanwhile.
            assert!(
                left == -2 || (0..=12_000).contains(&left),
                "{record} stays for {left} ms"
            );
        }
    }

    /// Repeats a command until Redis gives the expected answer.
    pub(crate) async fn until(&self, command: &str, expected: impl Fn(&str) -> bool) {
        let end = Instant::now() + LIMIT;
        loop {
            let answer = self.ask(command);
            if expected(&answer) {
                return;
            }
            assert!(Instant::now() < end, "`{command}` still answers: {answer}");
            // sleep: Redis does not say when a key changes.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits for 30 ms, in which new subscribers try once more to acquire the lock, and then sleep.
async fn settled() {
    // sleep: no event reports that the subscribers sleep. If this is too short, a test checks less but does not fail.
    tokio::time::sleep(Duration::from_millis(30)).await;
}

pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(limit, future).await;
    answer.unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

/// Checks that a Java thread gets an exception when it unlocks a lock that it does not hold.
pub(crate) async fn assert_holds_nothing(java: &Lock) {
    let error = java.unlock().await.unwrap_err();
    assert_eq!(error.name, "IllegalMonitorStateException");
}

/// Returns whether the future is still pending after `time`, for which the test waits.
pub(crate) async fn is_still_waiting_after(time: Duration, future: impl Future + Unpin) -> bool {
    tokio::time::timeout(time, future).await.is_err()
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        println!("with {}", self.java.worker().driver().name());
        // Ignores errors: a listed key may have expired before its value is read.
        let ask = |words: &[&str]| self.redis.ask(words).unwrap_or_default();
        for key in ask(&["KEYS", "*"]).lines() {
            let kind = ask(&["TYPE", key]);
            let there = match kind.as_str() {
                "hash" => ask(&["HGETALL", key]),
                "list" => ask(&["LRANGE", key, "0", "-1"]),
                "zset" => ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
                _ => ask(&["GET", key]),
            };
            println!("{key}, a {kind}: {}", there.replace('\n', " "));
        }
    }
}
