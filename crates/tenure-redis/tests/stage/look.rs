//! A look at a server with bare commands, beside clients on it.
//! The server itself is in `server.rs`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_servers::Redis;
use tenure_testkit::suite::Trial;

use super::server::Server;

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

    /// How many scripts were called since the statistics were reset.
    pub(crate) fn scripts_called(&self) -> usize {
        let said = self.text(&["INFO", "commandstats"]);
        let Some((_, calls)) = said.split_once("cmdstat_evalsha:calls=") else {
            return 0;
        };
        let (calls, _) = calls.split_once(',').expect("more is said");
        calls.parse().expect("a number")
    }

    /// Every key there is, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let text = self.text(&["KEYS", "*"]);
        let mut keys: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// Another look, as after a restart.
    pub(crate) fn look_again(&self) {
        *self.raw.lock() = connection(&self.redis.lock().url());
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
