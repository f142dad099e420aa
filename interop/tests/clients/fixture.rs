//! A Redis for each test, with another project's client and a Tenure client.

use std::time::{Duration, Instant};

use tenure::{Client, Settings};
use tenure_interop::{Driver, Lock, Peer, Worker};
use tenure_servers::Redis;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::subject::{Ours, Subject};

/// A time limit that only a failing test reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// Time limit for a waiter whose turn has come, on a machine that is busy with other tests.
pub(crate) const PROMPT: Duration = Duration::from_secs(10);

/// The lease of tests that never reach its end.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The lease of tests that wait for its end.
pub(crate) const SHORT: Duration = Duration::from_secs(3);

/// The kind of lock and the client with which a case runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) subject: &'static Subject,
    pub(crate) driver: Driver,
}

pub(crate) struct Fixture {
    pub(crate) redis: Redis,
    pub(crate) peer: Peer,
    pub(crate) client: Client,
    pub(crate) subject: &'static Subject,
}

impl Setting {
    /// Creates a fixture whose other client runs in the driver's process that all tests share. Both clients use
    /// `lease`. Returns `None` if `TENURE_SKIP` names a tool that the driver needs.
    pub(crate) async fn fixture(self, lease: Duration) -> Option<Fixture> {
        Some(self.fixture_in(&Worker::shared(self.driver)?, lease).await)
    }

    /// Creates a fixture whose other client runs in the process of `worker`.
    pub(crate) async fn fixture_in(self, worker: &Worker, lease: Duration) -> Fixture {
        let redis = Redis::start().unwrap();
        let peer = Peer::open(worker, &redis.url(), lease).await.unwrap();
        let settings = Settings::default().lease(lease);
        let url = format!("{}{}", redis.url(), self.subject.options);
        let client = tenure::connect_with(&url, settings).await.unwrap();
        Fixture {
            redis,
            peer,
            client,
            subject: self.subject,
        }
    }
}

impl Fixture {
    /// Tenure's lock.
    pub(crate) fn ours(&self) -> Ours {
        self.subject.ours(&self.client)
    }

    /// The other client's lock, used by that owner.
    pub(crate) fn theirs(&self, owner: &str) -> Lock {
        self.peer.owner(owner).lock(self.subject.kind, self.subject.key)
    }

    /// The URL for another Tenure client.
    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.redis.url(), self.subject.options)
    }

    /// The answer of Redis to a command.
    pub(crate) fn ask(&self, command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        self.redis.ask(&words).unwrap()
    }

    /// The data in Redis, without Tenure's own keys: a line for each key with its name, type and content, in which `ID`
    /// stands for an id. Keys that would stay for ever end in `, for ever`.
    pub(crate) fn data(&self) -> Vec<String> {
        let keys = self.ask("KEYS *");
        let mut lines: Vec<String> = keys
            .lines()
            .filter(|key| !key.starts_with("tenure_"))
            .map(|key| {
                let kind = self.ask(&format!("TYPE {key}"));
                let content = match kind.as_str() {
                    "hash" => pairs(&self.ask(&format!("HGETALL {key}"))),
                    // Shows only the number of members, because a member may be binary.
                    "zset" => format!("with {}", self.ask(&format!("ZCARD {key}"))),
                    "list" => self.ask(&format!("LRANGE {key} 0 -1")).replace('\n', " "),
                    "string" => number_or_id(self.ask(&format!("GET {key}"))),
                    _ => unreachable!("{kind} is no type of Redis that has locks"),
                };
                let end = if self.ask(&format!("PTTL {key}")) == "-1" {
                    ", for ever"
                } else {
                    ""
                };
                masked(&format!("{key} {kind} {content}{end}"))
            })
            .collect();
        lines.sort();
        lines
    }

    /// Waits until Redis has only data that satisfies `is_expected`.
    pub(crate) async fn until_data(&self, is_expected: impl Fn(&[String]) -> bool) {
        let end = Instant::now() + LIMIT;
        loop {
            let data = self.data();
            if is_expected(&data) {
                return;
            }
            assert!(Instant::now() < end, "Redis still has {data:?}");
            // sleep: Redis does not say when a key changes.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Returns a number as it is, and `ID` for any other string: that is the id of a holder, in the format of its client.
fn number_or_id(value: String) -> String {
    if value.parse::<i64>().is_ok() {
        value
    } else {
        "ID".to_owned()
    }
}

/// The lines of a reply, which are names and values in turn, as `name=value`.
fn pairs(reply: &str) -> String {
    let lines: Vec<&str> = reply.lines().collect();
    let mut pairs: Vec<String> = lines.chunks(2).map(|pair| pair.join("=")).collect();
    pairs.sort();
    pairs.join(" ")
}

/// Replaces by `ID` what differs between two runs: times in milliseconds, and ids. An id is a word of at least 20
/// characters of base64 that does not start with `redisson_`. If a number such as `:7` follows the word, it is part
/// of the id.
fn masked(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_+/".contains(c);
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_id = word.len() >= 20 && !word.starts_with("redisson_");
        let is_time = word.len() >= 13 && word.bytes().all(|byte| byte.is_ascii_digit());
        if is_id || is_time {
            masked += "ID";
            rest = after.trim_start_matches("==");
            if let Some(number) = rest.strip_prefix(':') {
                let digits = number
                    .trim_start_matches('-')
                    .trim_start_matches(|c: char| c.is_ascii_digit());
                if digits.len() < number.len() {
                    rest = digits;
                }
            }
        } else if word.is_empty() {
            masked.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            masked += word;
            rest = after;
        }
    }
    masked
}

/// A number in Redis that is read and then written. Only a lock prevents lost increments.
pub(crate) struct Register {
    key: &'static str,
    stream: BufReader<TcpStream>,
}

impl Register {
    pub(crate) async fn open(redis: &Redis, key: &'static str) -> Register {
        let stream = TcpStream::connect(redis.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let stream = BufReader::new(stream);
        Register { key, stream }
    }

    /// Reads the number, and then writes it plus 1.
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

pub(crate) async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(limit, future).await;
    answer.unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

/// Waits for `time`, and checks that the waiter still waits then.
pub(crate) async fn assert_waits(time: Duration, what: &str, future: impl Future + Unpin) {
    let answer = tokio::time::timeout(time, future).await;
    assert!(answer.is_err(), "{what} did not wait for {time:?}");
}
