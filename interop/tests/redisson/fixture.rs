//! What the tests share: a Redis of their own, a client of Redisson on it, and direct looks at what is in it.

use std::time::{Duration, Instant};

use tenure::{Client, Mutex};
use tenure_interop::redisson::{Fleet, Jvm, Lock, Version};
use tenure_servers::Redis;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Generous: reached only by a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// How long a waiter that is told may take, on a machine that is busy with other tests. One that is not told waits for
/// `LEASE`.
pub(crate) const PROMPT: Duration = Duration::from_secs(2);

/// How long one that must wait is seen to wait.
pub(crate) const MOMENT: Duration = Duration::from_millis(300);

/// What Redisson calls `lockWatchdogTimeout`, and Tenure the lease, unless a test says otherwise: the default of both.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A Redis, a client of Redisson and one of Tenure on it.
pub(crate) struct Scene {
    pub(crate) redis: Redis,
    pub(crate) java: Fleet,
    pub(crate) client: Client,
}

impl Scene {
    /// One for each release of Redisson; none if the tests do without Java.
    pub(crate) async fn each() -> Vec<Scene> {
        let mut scenes = Vec::new();
        for version in Version::ALL {
            scenes.extend(Scene::new(version).await);
        }
        scenes
    }

    /// One with that release; none if the tests do without Java.
    pub(crate) async fn new(version: Version) -> Option<Scene> {
        Some(Scene::in_jvm(&Jvm::shared(version)?, LEASE).await)
    }

    /// One in that Java process, with that lease.
    pub(crate) async fn in_jvm(jvm: &Jvm, watchdog: Duration) -> Scene {
        let redis = Redis::start().unwrap();
        let java = Fleet::open(jvm, &redis.url(), watchdog).await.unwrap();
        let client = tenure::connect(&redis.url()).await.unwrap();
        Scene { redis, java, client }
    }

    /// Another client of Tenure.
    pub(crate) async fn another_client(&self) -> Client {
        tenure::connect(&self.redis.url()).await.unwrap()
    }

    /// The mutex `k` of Tenure.
    pub(crate) fn mutex(&self) -> Mutex {
        self.client.mutex("k")
    }

    /// The mutex `k`, in the hands of that thread of Java.
    pub(crate) fn java_plain(&self, owner: &str) -> Lock {
        self.java.owner(owner).plain("k")
    }

    /// The fair mutex `k`, in the hands of that thread of Java.
    pub(crate) fn java_fair(&self, owner: &str) -> Lock {
        self.java.owner(owner).fair("k")
    }

    /// What Redis answers.
    pub(crate) fn ask(&self, command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        self.redis.ask(&words).unwrap()
    }

    /// Waits until so many connections listen for the unlock of a mutex.
    pub(crate) async fn until_listening(&self, key: &str, connections: u32) {
        let channel = format!("redisson_lock__channel:{{{key}}}");
        let expected = format!("{channel}\n{connections}");
        self.until(&format!("PUBSUB NUMSUB {channel}"), |answer| answer == expected)
            .await;
        settled().await;
    }

    /// Waits until anybody listens for the unlock of anything.
    pub(crate) async fn until_somebody_listens(&self) {
        self.until("PUBSUB CHANNELS redisson_*", |channels| !channels.is_empty())
            .await;
        settled().await;
    }

    /// Waits until so many queue for a fair mutex, each listening on a channel of its own.
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

    /// Waits until nothing is left in Redis that names this key, but what remembers Tenure's ended claims for 12 s.
    pub(crate) async fn until_nothing_is_left_of(&self, key: &str) {
        self.until(&format!("KEYS *{key}*"), |keys| {
            let known = |key: &str| key == "tenure_tokens" || key.starts_with("tenure_claim:");
            keys.lines().all(known)
        })
        .await;
        for record in self.ask("KEYS tenure_claim:*").lines() {
            let left: i64 = self.ask(&format!("PTTL {record}")).parse().unwrap();
            // -2: it has gone meanwhile.
            assert!(
                left == -2 || (0..=12_000).contains(&left),
                "{record} stays for {left} ms"
            );
        }
    }

    /// Waits until Redis answers what is expected.
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

/// A number in Redis, read and written without any care for others.
pub(crate) struct Register {
    key: &'static str,
    stream: BufReader<TcpStream>,
}

impl Register {
    pub(crate) async fn open(scene: &Scene, key: &'static str) -> Register {
        let stream = TcpStream::connect(scene.redis.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = BufReader::new(stream);
        Register { key, stream }
    }

    /// Reads it, and then writes it with 1 added.
    pub(crate) async fn raise(&mut self) {
        let length = self.ask(format!("GET {}\r\n", self.key)).await;
        let before: u64 = match length.as_str() {
            "$-1" => 0,
            _ => self.line().await.parse().unwrap(),
        };
        let done = self.ask(format!("SET {} {}\r\n", self.key, before + 1)).await;
        assert_eq!(done, "+OK");
    }

    async fn ask(&mut self, command: String) -> String {
        self.stream.write_all(command.as_bytes()).await.unwrap();
        self.line().await
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }
}

/// Until who has begun to listen has asked once more, as each does, and is asleep: nothing tells that.
async fn settled() {
    // sleep: see above; if it is too short, a test shows less, and is not red.
    tokio::time::sleep(Duration::from_millis(30)).await;
}

/// Awaits it, at most so long.
pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(limit, future).await;
    answer.unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

/// Has a thread of Java unlock what it does not hold: an exception, and nothing else.
pub(crate) async fn assert_holds_nothing(java: &Lock) {
    let error = java.unlock().await.unwrap_err();
    assert_eq!(error.name, "IllegalMonitorStateException");
}

/// Whether it is still not answered after so long: the time is the test.
pub(crate) async fn is_still_waiting_after(time: Duration, future: impl Future + Unpin) -> bool {
    tokio::time::timeout(time, future).await.is_err()
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        println!("with Redisson {}", self.java.jvm().version().number());
        // A key may be gone before it is looked at.
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
