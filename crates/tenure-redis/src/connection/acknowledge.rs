//! Acknowledgements: asks the server how many replicas have a write, on a connection of its own, because `WAIT` blocks
//! its connection. One `WAIT` answers all callers that came while the one before it was under way.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, InfoDict, Pipeline, RedisResult};
use tenure_backend::BackendError;
use tenure_endpoint::Host;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::claims::reply::integer;
use crate::connection::connect_error::{ConnectError, two_servers};
use crate::connection::dial::Dialer;
use crate::connection::driver::{Driver, log_in};
use crate::error;
use crate::topology::Acknowledgement;

/// The most callers that one `WAIT` answers.
const MAX_CALLERS: usize = 4096;

/// The key of the write that precedes each `WAIT`, and its time to live in milliseconds.
const KEY: &str = "tenure_tokens:acknowledged";
const KEY_TTL: u32 = 1000;

type Caller = oneshot::Sender<Result<(), BackendError>>;

/// Asks replicas for acknowledgements. It belongs to one connection for calls.
pub(crate) struct Acknowledger(UnboundedSender<Caller>);

impl Acknowledger {
    /// Connects to the process that answers the `calls`. Another one may have taken over its address: its replicas know
    /// nothing of the calls.
    pub(crate) async fn open(
        dialer: &Dialer,
        server: &Host,
        calls: &mut MultiplexedConnection,
        wanted: Acknowledgement,
    ) -> Result<Self, ConnectError> {
        let stream = dialer.streams.open(server).await?;
        let login = dialer.handshake().await?;
        let (mut connection, driver) = log_in(stream, &login, AsyncConnectionConfig::new()).await?;
        let process = run_id(calls).await?;
        if process.is_none() || run_id(&mut connection).await? != process {
            return Err(two_servers(server).into());
        }
        let (sender, callers) = unbounded_channel();
        let limit = wanted.wait + dialer.config.command_timeout;
        tokio::spawn(acknowledge(connection, driver, callers, wanted, limit));
        Ok(Acknowledger(sender))
    }

    /// Returns once enough replicas have all writes that were answered before this call.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(crate) async fn acknowledged(&self) -> Result<(), BackendError> {
        let (caller, answer) = oneshot::channel();
        // If the task has ended with its connection, this drops `caller`, which ends the wait below.
        let _ = self.0.send(caller);
        answer.await.unwrap_or_else(|_| Err(error::no_acknowledgement()))
    }

    /// Returns whether the connection has ended, so that no more acknowledgements come.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.is_closed()
    }
}

/// Answers callers until the connection fails or no caller can come.
async fn acknowledge(
    mut connection: MultiplexedConnection,
    _driver: Driver,
    mut queue: UnboundedReceiver<Caller>,
    wanted: Acknowledgement,
    limit: Duration,
) {
    let mut callers = Vec::new();
    while queue.recv_many(&mut callers, MAX_CALLERS).await > 0 {
        callers.retain(|caller| !caller.is_closed());
        if callers.is_empty() {
            continue;
        }
        let question = question(wanted);
        let asking = connection.send_packed_commands(&question, 0, question.len());
        let Ok(Ok(replies)) = timeout(limit, asking).await else {
            break;
        };
        let Some(count) = replies.last().and_then(integer) else {
            tracing::warn!(?replies, "the server refuses to wait for its replicas");
            break;
        };
        for caller in callers.drain(..) {
            let _ = caller.send(match count >= wanted.replicas {
                true => Ok(()),
                false => Err(error::too_few_replicas(count, wanted.replicas, wanted.wait)),
            });
        }
    }
    // Before `callers` are dropped: they look whether the queue is closed.
    queue.close();
}

/// `WAIT` covers the writes of its own connection only. A write before it makes it cover all earlier ones.
fn question(wanted: Acknowledgement) -> Pipeline {
    let mut question = redis::pipe();
    question.cmd("SET").arg(KEY).arg(1).arg("PX").arg(KEY_TTL);
    question.cmd("WAIT").arg(wanted.replicas).arg(wanted.wait_ms());
    question
}

/// The ID of the server's process.
async fn run_id(connection: &mut MultiplexedConnection) -> RedisResult<Option<String>> {
    let info: InfoDict = redis::cmd("INFO").arg("server").query_async(connection).await?;
    Ok(info.get("run_id").filter(|id: &String| !id.is_empty()))
}
