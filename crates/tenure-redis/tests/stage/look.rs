//! A look at a server with bare commands, beside clients on it.
//! The server itself is in `server.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use tenure_backend::{Claim, LockKey, Wakes};
use tenure_servers::Redis;
use tenure_testkit::suite::{Client, Trial};

use super::java::{channel, timeouts};
use super::server::{Server, USER};

/// A server, clients on it, and a look at it with bare commands.
pub(crate) struct Stage {
    pub(crate) trial: Trial,
    pub(crate) redis: Arc<Mutex<Redis>>,
    raw: Mutex<redis::Connection>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Stage::on(Server::start()).await
    }

    /// With a client and a key.
    pub(crate) async fn one() -> (Self, Client, LockKey) {
        Stage::one_on(Server::start()).await
    }

    pub(crate) async fn one_on(server: Server) -> (Self, Client, LockKey) {
        let stage = Stage::on(server).await;
        let (client, key) = (stage.trial.client().await, stage.trial.key());
        (stage, client, key)
    }

    /// With two clients and a key.
    pub(crate) async fn two() -> (Self, [Client; 2], LockKey) {
        let stage = Stage::new().await;
        let (clients, key) = (stage.trial.two().await, stage.trial.key());
        (stage, clients, key)
    }

    /// With three.
    pub(crate) async fn three() -> (Self, [Client; 3], LockKey) {
        let stage = Stage::new().await;
        let (clients, key) = (stage.trial.three().await, stage.trial.key());
        (stage, clients, key)
    }

    pub(crate) async fn on(server: Server) -> Self {
        let redis = server.redis.clone();
        let raw = Mutex::new(connection(&redis.lock().url()));
        let trial = Trial::new(server).await;
        Stage { trial, redis, raw }
    }

    /// What the server answers to a bare command.
    pub(crate) fn ask(&self, command: &[&str]) -> redis::Value {
        let mut ask = redis::cmd(command[0]);
        ask.arg(&command[1..]);
        ask.query(&mut *self.raw.lock())
            .unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// The same, as text: a number, a text, or the texts of a list side by side.
    pub(crate) fn text(&self, command: &[&str]) -> String {
        as_text(&self.ask(command))
    }

    pub(crate) fn number(&self, command: &[&str]) -> i64 {
        let text = self.text(command);
        text.parse().unwrap_or_else(|_| panic!("{command:?} is {text}"))
    }

    /// The server's clock, in milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        let text = self.text(&["TIME"]);
        let (seconds, micros) = text.split_once(' ').expect("seconds and microseconds");
        seconds.parse::<i64>().expect("a number") * 1000 + micros.parse::<i64>().expect("a number") / 1000
    }

    /// By how many milliseconds Java's score of a waiter is ahead of the server's clock.
    pub(crate) fn score(&self, key: &LockKey, owner: &str) -> i64 {
        self.number(&["ZSCORE", &timeouts(key), owner]) - self.now_ms()
    }

    /// How many listen to the channel of a lock.
    pub(crate) fn listeners(&self, key: &LockKey) -> usize {
        let channel = channel(key);
        let said = self.text(&["PUBSUB", "NUMSUB", &channel]);
        said[channel.len()..].trim().parse().expect("a number")
    }

    /// From now on the clients may touch no locks but these.
    pub(crate) fn allow_only<'a>(&self, claims: impl IntoIterator<Item = &'a Arc<Claim>>) {
        self.ask(&["ACL", "SETUSER", USER, "resetkeys", "~tenure_*", "~redisson_*"]);
        for claim in claims {
            self.ask(&["ACL", "SETUSER", USER, &format!("~{}", claim.at.key)]);
        }
    }

    /// How long a key lives by itself, in milliseconds; -1 is for ever.
    pub(crate) fn left(&self, key: &str) -> i64 {
        self.number(&["PTTL", key])
    }

    /// Asserts that a key ends by itself after so many seconds, less what the test took.
    #[track_caller]
    pub(crate) fn ends_after(&self, key: &str, seconds: i64) {
        let (left, most) = (self.left(key), seconds * 1_000);
        assert!(
            (most - 1_000..=most).contains(&left),
            "{key}: {left} ms, not {most}"
        );
    }

    pub(crate) fn exists(&self, key: &str) -> bool {
        self.number(&["EXISTS", key]) == 1
    }

    /// Sets the server's clock, and leaves those of its clients.
    pub(crate) fn step_ms(&self, milliseconds: i64) {
        let redis = self.redis.lock();
        let clock = redis.clock().expect("it steps");
        clock.step_ms(milliseconds).expect("the clock steps");
    }

    /// How often a command was called since the statistics were reset.
    pub(crate) fn calls_of(&self, command: &str) -> usize {
        let said = self.text(&["INFO", "commandstats"]);
        let Some((_, calls)) = said.split_once(&format!("cmdstat_{command}:calls=")) else {
            return 0;
        };
        let (calls, _) = calls.split_once(',').expect("more is said");
        calls.parse().expect("a number")
    }

    pub(crate) fn scripts_called(&self) -> usize {
        self.calls_of("evalsha")
    }

    /// Every key there is, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let text = self.text(&["KEYS", "*"]);
        let mut keys: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        keys.sort();
        keys
    }
}

fn connection(url: &str) -> redis::Connection {
    let client = redis::Client::open(url).expect("a URL");
    client.get_connection().expect("the server answers")
}

fn as_text(value: &redis::Value) -> String {
    match value {
        redis::Value::Nil => "nil".to_owned(),
        redis::Value::Int(number) => number.to_string(),
        redis::Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        redis::Value::SimpleString(text) => text.clone(),
        redis::Value::Okay => "OK".to_owned(),
        redis::Value::Array(values) => values.iter().map(as_text).collect::<Vec<_>>().join(" "),
        other => panic!("{other:?}"),
    }
}

/// What comes, within some seconds.
pub(crate) async fn soon<T>(coming: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(Duration::from_secs(10), coming).await;
    came.expect("it has not come within 10 s")
}

/// Waits for a wake-up.
pub(crate) async fn wakes_up(wakes: &mut Wakes) {
    assert_eq!(soon(wakes.next()).await, Some(()));
}

/// Waits for something that nobody tells of.
pub(crate) fn wait_until(mut happens: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !happens() {
        assert!(std::time::Instant::now() < end, "it has not happened within 10 s");
        // sleep: nobody tells.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Everything that could be printed of an error.
pub(crate) fn printed(error: &tenure_backend::BackendError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error} {error:?} {cause:?}")
}
