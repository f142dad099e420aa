//! Acknowledgements: asks the server how many replicas have a write, on a connection of its own, because `WAIT` blocks
//! its connection. One `WAIT` answers all callers that came while the one before it was under way.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, InfoDict, Pipeline, RedisResult, Value};
use tenure_backend::{BackendError, LockKey};
use tenure_endpoint::Host;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::claims::refusal::{translate, wait_refused};
use crate::claims::reply::integer;
use crate::claims::slot::{scope, slot};
use crate::connection::connect_error::{ConnectError, two_servers};
use crate::connection::dial::Dialer;
use crate::connection::driver::{Driver, log_in};
use crate::error;
use crate::topology::Acknowledgement;

/// The most callers that one `WAIT` answers.
const MAX_CALLERS: usize = 4096;

/// The key that is written before each `WAIT`; `KEY_TTL` is its time to live in milliseconds. In a cluster a hash tag
/// is appended, which puts the key into a slot that the node serves.
const KEY: &str = "tenure_tokens:acknowledged";
const KEY_TTL: u32 = 1000;

/// Where to send the answer, and the key of the caller's lock.
type Caller = (oneshot::Sender<Result<(), BackendError>>, LockKey);

/// Asks the master how many replicas have its writes. Each connection for calls has an acknowledger of its own.
pub(crate) struct Acknowledger(UnboundedSender<Caller>);

impl Acknowledger {
    /// Connects to the server at the other end of `calls`. Fails if another server process answers at its address,
    /// because its replicas do not have the writes made on `calls`.
    pub(crate) async fn open(
        dialer: &Dialer,
        server: &Host,
        calls: &mut MultiplexedConnection,
        wanted: Acknowledgement,
    ) -> Result<Self, ConnectError> {
        let stream = dialer.streams.open(server, None).await?;
        let login = dialer.handshake().await?;
        let (mut connection, driver) = log_in(stream, &login, AsyncConnectionConfig::new()).await?;
        let process = run_id(calls).await?;
        if process.is_none() || run_id(&mut connection).await? != process {
            return Err(two_servers(server).into());
        }
        let (sender, callers) = unbounded_channel();
        let limit = wanted.wait + dialer.config.command_timeout;
        let in_cluster = dialer.moves.is_some();
        tokio::spawn(acknowledge(
            connection, driver, callers, wanted, limit, in_cluster,
        ));
        Ok(Acknowledger(sender))
    }

    /// Returns once enough replicas have all writes that were answered before this call. Fails if they do not in time.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(crate) async fn acknowledged(&self, key: &LockKey) -> Result<(), BackendError> {
        let (caller, answer) = oneshot::channel();
        // If the task has ended with its connection, this drops `caller`, which ends the wait below.
        let _ = self.0.send((caller, key.clone()));
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
    in_cluster: bool,
) {
    let mut callers = Vec::new();
    while queue.recv_many(&mut callers, MAX_CALLERS).await > 0 {
        callers.retain(|(caller, _)| !caller.is_closed());
        let Some((_, key)) = callers.last() else {
            continue;
        };
        let question = question(wanted, in_cluster.then(|| slot(key.as_str().as_bytes())));
        let asking = connection.send_packed_commands(&question, 0, question.len());
        let Ok(Ok(replies)) = timeout(limit, asking).await else {
            break;
        };
        let answer = match &replies[..] {
            // The write before `WAIT` was refused, so `WAIT` counted the replicas that have an earlier write.
            [Value::ServerError(refusal), _] => Err(error::not_counted(&translate(&refusal.clone().into()))),
            [_, Value::ServerError(refusal)] => match wait_refused(&refusal.clone().into()) {
                Some(refused) => Err(refused),
                None => {
                    tracing::warn!(?refusal, "the server refuses to wait for its replicas");
                    break;
                }
            },
            [_, count] => match integer(count) {
                Some(count) if count >= wanted.replicas => Ok(()),
                Some(count) => Err(error::too_few_replicas(count, wanted.replicas, wanted.wait)),
                None => break,
            },
            _ => break,
        };
        for (caller, _) in callers.drain(..) {
            let _ = caller.send(answer.clone());
        }
    }
    // Closes the queue before `callers` are dropped: the dropped callers then fail, and `has_ended` must be true.
    queue.close();
}

/// `WAIT` covers the last write of its own connection and all writes before it, also those of other connections. So a
/// write precedes each `WAIT`.
fn question(wanted: Acknowledgement, slot: Option<u16>) -> Pipeline {
    let mut question = redis::pipe();
    let key = format!("{KEY}{}", slot.map(scope).unwrap_or_default());
    question.cmd("SET").arg(key).arg(1).arg("PX").arg(KEY_TTL);
    question
        .cmd("WAIT")
        .arg(wanted.replicas)
        .arg(wanted.wait.as_millis());
    question
}

/// The ID of the server's process.
async fn run_id(connection: &mut MultiplexedConnection) -> RedisResult<Option<String>> {
    let info: InfoDict = redis::cmd("INFO").arg("server").query_async(connection).await?;
    Ok(info.get("run_id").filter(|id: &String| !id.is_empty()))
}
