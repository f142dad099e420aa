//! The commands of four letters, by which a server describes itself.

use tenure_backend::BackendError;
use tenure_endpoint::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::connect::dialer;
use crate::config::Config;
use crate::error::not_connected;

/// The most bytes of an answer that are read.
const MAX_ANSWER: u64 = 1 << 20;

/// Sends a command of four letters, such as `conf`, on a connection of its own. Returns the answer, also if it says that the server
/// does not allow the command (`4lw.commands.whitelist`).
pub(crate) async fn ask(config: &Config, host: &Host, word: &str) -> Result<String, BackendError> {
    let dialer = dialer(config)?;
    let limit = config.command_timeout;
    let asked = async {
        let mut stream = dialer.dial(host).await?;
        let failed = |error: std::io::Error| dialer.unreachable(host, &error);
        stream.write_all(word.as_bytes()).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        let mut answer = Vec::new();
        match stream.take(MAX_ANSWER).read_to_end(&mut answer).await {
            // A server with TLS may close the connection without a farewell.
            Err(error) if answer.is_empty() => Err(failed(error)),
            _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
        }
    };
    let answer = timeout(limit, asked).await;
    answer.unwrap_or_else(|_| Err(not_connected(host, limit)))
}
