//! A Redis for each test.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use tenure_interop::Lock;
use tenure_servers::Redis;

use crate::shared::fixture::Store;
use crate::shared::subject::Subject;

pub(crate) fn start(_: &Subject) -> Option<Arc<dyn Store>> {
    Some(Arc::new(Redis::start().unwrap()))
}

impl Store for Redis {
    fn url(&self) -> String {
        Redis::url(self)
    }

    /// A line for each key with its name, type and content, in which `ID` stands for an id. Keys that would stay for ever
    /// end in `, for ever`.
    fn data(&self) -> Vec<String> {
        let keys = ask(self, "KEYS *");
        let mut lines: Vec<String> = keys
            .lines()
            .filter(|key| !key.starts_with("tenure_"))
            .map(|key| {
                let kind = ask(self, &format!("TYPE {key}"));
                let content = match kind.as_str() {
                    "hash" => pairs(&ask(self, &format!("HGETALL {key}"))),
                    // Shows only the number of members, because a member may be binary.
                    "zset" => format!("with {}", ask(self, &format!("ZCARD {key}"))),
                    "list" => ask(self, &format!("LRANGE {key} 0 -1")).replace('\n', " "),
                    "string" => number_or_id(ask(self, &format!("GET {key}"))),
                    _ => unreachable!("{kind} is no type of Redis that has locks"),
                };
                let end = if ask(self, &format!("PTTL {key}")) == "-1" {
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

    /// The waiters of Redisson's fair lock.
    fn queued(&self) -> usize {
        let queue = |line: &String| line.starts_with("redisson_lock_queue:{k} list");
        let queue = self.data().into_iter().find(queue).unwrap_or_default();
        queue.matches(" ID").count()
    }

    fn counter(&self, _: &Lock) -> Box<dyn FnMut() + Send> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut stream = BufReader::new(stream);
        Box::new(move || {
            let before = match answer(&mut stream, "GET counter").as_str() {
                "$-1" => 0,
                _ => line(&mut stream).parse::<u32>().unwrap(),
            };
            let done = answer(&mut stream, &format!("SET counter {}", before + 1));
            assert_eq!(done, "+OK");
        })
    }

    fn counted(&self) -> u32 {
        ask(self, "GET counter").parse().unwrap()
    }
}

/// The answer of Redis to a command.
fn ask(redis: &Redis, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    redis.ask(&words).unwrap()
}

fn answer(stream: &mut BufReader<TcpStream>, command: &str) -> String {
    let command = format!("{command}\r\n");
    stream.get_mut().write_all(command.as_bytes()).unwrap();
    line(stream)
}

fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
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
