//! The fenced resource: a server on a Unix socket that refuses what is older than the newest it has seen, and writes down
//! in which order it accepted. Not here: the counter that is not fenced (`worker/counter.rs`).

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure::FencingToken;
use tenure_testkit::What;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;

use crate::journal::{Journal, now};
use crate::line::Noted;

/// The register's server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Register(AbortHandle);

/// What it has seen: for each key the greatest token.
#[derive(Debug)]
struct Seen {
    greatest: Mutex<HashMap<String, FencingToken>>,
    journal: Journal,
    /// A planted bug: it forgets.
    forgetful: bool,
}

impl Register {
    pub(crate) fn start(path: &Path, journal: Journal, forgetful: bool) -> io::Result<Register> {
        let listener = UnixListener::bind(path)?;
        let seen = Arc::new(Seen {
            greatest: Mutex::default(),
            journal,
            forgetful,
        });
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, seen.clone()));
            }
        });
        Ok(Register(accepting.abort_handle()))
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Answers one client until it goes: for each write a line of JSON, `[ATTEMPT, TOKEN, KEY]`, and another that says whether it was accepted.
async fn serve(stream: UnixStream, seen: Arc<Seen>) -> io::Result<()> {
    let (from, mut to) = stream.into_split();
    let mut lines = BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        let (attempt, token, key) = serde_json::from_str(&line)?;
        let token = FencingToken::new(token).ok_or_else(|| io::Error::other("a write without a token"))?;
        let accepted = seen.take(attempt, token, key)?;
        to.write_all(format!("{accepted}\n").as_bytes()).await?;
    }
    Ok(())
}

impl Seen {
    /// Accepts the write or refuses it. It is written down before another is looked at, so that the log has their order.
    fn take(&self, attempt: u64, token: FencingToken, key: String) -> io::Result<bool> {
        let mut greatest = self.greatest.lock();
        let is_older = greatest.get(&key).is_some_and(|newest| token < *newest);
        if is_older && !self.forgetful {
            self.journal.note(now(), attempt, Noted::Refused)?;
            return Ok(false);
        }
        greatest.insert(key, token);
        self.journal.event(now(), attempt, What::Accepted { token })?;
        Ok(true)
    }
}

/// A connection to the register.
#[derive(Debug)]
pub(crate) struct Writer(BufReader<UnixStream>);

impl Writer {
    pub(crate) async fn connect(path: &Path) -> io::Result<Writer> {
        Ok(Writer(BufReader::new(UnixStream::connect(path).await?)))
    }

    /// Writes on behalf of an attempt, and says whether it was accepted.
    pub(crate) async fn write(&mut self, attempt: u64, token: FencingToken, key: &str) -> io::Result<bool> {
        let mut write = serde_json::to_string(&(attempt, token.get(), key))?;
        write.push('\n');
        self.0.get_mut().write_all(write.as_bytes()).await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        Ok(serde_json::from_str(&answer)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_is_refused_once_a_greater_one_was_seen_on_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("register.log");
        let journal = Journal::open(&log).unwrap();
        let socket = folder.path().join("socket");
        let _register = Register::start(&socket, journal, false).unwrap();
        let mut writer = Writer::connect(&socket).await.unwrap();
        let token = |number| FencingToken::new(number).unwrap();
        assert!(writer.write(1, token(5), "k").await.unwrap());
        assert!(
            writer.write(2, token(5), "k").await.unwrap(),
            "the same holder again"
        );
        assert!(writer.write(3, token(9), "k").await.unwrap());
        assert!(!writer.write(4, token(8), "k").await.unwrap());
        assert!(writer.write(5, token(8), "another").await.unwrap());
        let log = std::fs::read_to_string(log).unwrap();
        let accepted: Vec<_> = log.lines().map(|line| line.contains("accepted")).collect();
        assert_eq!(accepted, [true, true, true, false, true]);
    }
}
