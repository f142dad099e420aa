//! One connection to the server. Calls are pipelined: each is sent without waiting for earlier replies, and replies
//! come in the same order.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, InfoDict, RedisResult, Value};
use tenure_backend::{BackendError, LockKey};
use tenure_endpoint::Host;
use tokio::time::timeout;

use crate::claims::refusal::{Refusal, translate};
use crate::claims::reply::{integer, list, text};
use crate::claims::script::{Command, Dialect};
use crate::connection::acknowledge::Acknowledger;
use crate::connection::clock::ServerClock;
use crate::connection::connect_error::{self, ConnectError, not_yet_master};
use crate::connection::dial::Dialer;
use crate::connection::driver::{Driver, log_in};
use crate::connection::sentinel::Sentinels;
use crate::error;

/// Number of calls that can queue for the task that writes to the socket; further callers wait for space.
const PIPELINE_BUFFER: usize = 1024;

/// An idle connection is pinged on every 20th check, to find a dead server before the next call needs it.
const IDLE_CHECKS_PER_PING: u32 = 20;

/// Number that will identify the next connection.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A connection for calls. Opening it loads the scripts of mutexes into the server. It lives until it breaks or is
/// dropped.
pub(crate) struct Wire {
    /// The form of script calls for this server.
    pub(crate) dialect: Dialect,
    /// Identifies the connection within this process.
    pub(crate) number: u64,
    connection: MultiplexedConnection,
    /// Lower bound of the server's clock. Each connection has its own, because the next may reach another server.
    pub(crate) clock: ServerClock,
    /// The shortest round trip seen while connecting.
    pub(crate) round_trip: Duration,
    /// Number of callers that wait for a reply.
    in_flight: Arc<AtomicUsize>,
    /// Asks how many replicas have a write, if the URL sets `replicas`.
    acknowledger: Option<Acknowledger>,
    /// This client closed the connection, as after a failed call. Set at once, because the driver task ends later.
    broken: AtomicBool,
    driver: Driver,
}

impl Wire {
    /// Connects, logs in, and loads the scripts of mutexes into the server.
    pub(crate) async fn open(dialer: &Dialer) -> Result<Arc<Self>, BackendError> {
        let config = &dialer.config;
        let opening = timeout(config.connect_timeout, Self::connect(dialer));
        match opening.await {
            Ok(wire) => wire.map_err(|error| error.translate(config)),
            Err(_) => Err(match dialer.sentinels().and_then(|all| all.promoting_until()) {
                Some(_) => connect_error::promoting(config),
                None => connect_error::timed_out(config),
            }),
        }
    }

    async fn connect(dialer: &Dialer) -> Result<Arc<Self>, ConnectError> {
        loop {
            let server = dialer.locate().await?;
            let Some(sentinels) = dialer.sentinels() else {
                return Self::connect_to(dialer, server).await;
            };
            // An attempt to connect to a dead master can hang for longer than a failover takes. So it ends when the
            // sentinels begin to replace this master, and another attempt locates the next one.
            tokio::select! {
                biased;
                () = sentinels.replaced(&server) => {}
                wire = Self::connect_to(dialer, server.clone()) => return wire,
            }
        }
    }

    async fn connect_to(dialer: &Dialer, server: Host) -> Result<Arc<Self>, ConnectError> {
        let (config, in_flight) = (&dialer.config, Arc::default());
        let stream = dialer.streams.open(&server, Some(&in_flight)).await?;
        let login = dialer.handshake().await?;
        let settings = AsyncConnectionConfig::new().set_pipeline_buffer_size(PIPELINE_BUFFER);
        let begun = config.clock.now();
        let (mut connection, driver) = log_in(stream, &login, settings).await?;
        let round_trip = config.clock.now() - begun;
        let dialect = match &dialer.moves {
            None => Dialect::Alone,
            Some(_) => dialect_of_node(&mut connection).await?,
        };
        if let Some(sentinels) = dialer.sentinels() {
            let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut connection).await?;
            let (role, replicas) = match &role[..] {
                [role, _, replicas] => (text(role), list(replicas)),
                _ => (None, None),
            };
            if role != Some("master") {
                return Err(not_yet_master(&server).into());
            }
            // This master has fewer replicas than the sentinels know of. One may have left it to be promoted, which
            // only one sentinel may know yet, so all are asked.
            if replicas.is_none_or(|replicas| (replicas.len() as u64) < sentinels.replicas()) {
                sentinels.ask_again().await;
            }
        }
        let acknowledger = match config.acknowledgement {
            None => None,
            Some(wanted) => Some(Acknowledger::open(dialer, &server, &mut connection, wanted).await?),
        };
        let mut first = redis::pipe();
        for script in config.layout.scripts().first() {
            first.add_command(script.load(dialect));
        }
        first.cmd("TIME");
        let sent = config.clock.now();
        let replies = connection.send_packed_commands(&first, 0, first.len()).await?;
        let round_trip = round_trip.min(config.clock.now() - sent);
        let replies = replies.into_iter().map(Value::extract_error);
        let replies = replies.collect::<RedisResult<Vec<_>>>()?;
        let shown = replies
            .last()
            .and_then(time)
            .ok_or_else(|| connect_error::no_time(&server))?;
        let wire = Arc::new(Wire {
            dialect,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            connection,
            clock: ServerClock::new(shown, config.clock.now()),
            round_trip,
            in_flight,
            acknowledger,
            broken: AtomicBool::new(false),
            driver,
        });
        let weak = Arc::downgrade(&wire);
        tokio::spawn(close_if_silent(weak.clone(), config.command_timeout));
        if let Some(sentinels) = dialer.sentinels() {
            tokio::spawn(close_if_replaced(weak, sentinels.clone(), server));
        }
        Ok(wire)
    }

    /// Returns whether the connection is broken, so that no more replies come.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed) || self.driver.has_ended()
    }

    /// Resolves when the connection has ended. The future does not keep the connection open.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.driver.ended()
    }

    /// Number of callers that wait for a reply.
    pub(crate) fn calls_in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts one more caller that waits for a reply, until the returned guard is dropped.
    pub(crate) fn count_call(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(&self.in_flight)
    }

    /// Calls a script by its hash. If the server has lost the script, sends the source with `EVAL`, which stores and
    /// runs the script in one step, so it cannot be lost in between.
    pub(crate) async fn call(&self, command: &Command) -> Result<Value, BackendError> {
        let _counted = self.count_call();
        self.call_uncounted(command).await
    }

    /// Like [`call`](Self::call), but does not count this call: it is for a batch, of which each caller is counted.
    pub(crate) async fn call_uncounted(&self, command: &Command) -> Result<Value, BackendError> {
        let mut reply = self.send(&*command.in_dialect(self.dialect)?).await;
        if matches!(&reply, Err(error) if error.code() == Some("NOSCRIPT")) {
            reply = self.send(&*command.with_source(self.dialect)?).await;
        }
        reply.map_err(|error| translate(&error))
    }

    /// Returns once enough replicas have all writes that were answered before this call. Fails if they do not in time.
    /// Returns at once if the URL does not set `replicas`.
    pub(crate) async fn acknowledged(&self, key: &LockKey) -> Result<(), BackendError> {
        let Some(acknowledger) = &self.acknowledger else {
            return Ok(());
        };
        let acknowledged = acknowledger.acknowledged(key).await;
        if acknowledger.has_ended() {
            self.close();
        }
        acknowledged
    }

    /// Sends a message to the subscribers of a channel.
    pub(crate) async fn publish(&self, channel: &str, message: &str) -> Result<(), BackendError> {
        let mut publish = redis::cmd(match self.dialect {
            Dialect::ShardedCluster => "SPUBLISH",
            Dialect::Alone | Dialect::Cluster => "PUBLISH",
        });
        self.query(publish.arg(channel).arg(message)).await
    }

    pub(crate) async fn time(&self) -> Result<u64, BackendError> {
        let reply = self.query(&redis::cmd("TIME")).await?;
        time(&reply).ok_or_else(error::unexpected_reply)
    }

    /// A section of what the server reports about itself.
    pub(crate) async fn info(&self, section: &str) -> Result<InfoDict, BackendError> {
        self.query(redis::cmd("INFO").arg(section)).await
    }

    /// A setting of the server; `None` if it cannot be read, as without permission for `CONFIG GET`.
    pub(crate) async fn setting(&self, name: &str) -> Option<String> {
        let reply = self.query(redis::cmd("CONFIG").arg("GET").arg(name)).await;
        let (_, value): (String, String) = reply.ok()?;
        Some(value)
    }

    /// Sends one Redis command that calls no script, and decodes the reply.
    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, BackendError> {
        let _counted = self.count_call();
        let reply = self.send(command).await.map_err(|error| translate(&error))?;
        T::from_redis_value(reply).map_err(|_| error::unexpected_reply())
    }

    /// Sends one command. Closes the connection if no reply comes, or if the server has become a replica.
    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let reply = connection.send_packed_command(command).await;
        let reply = reply.and_then(Value::extract_error);
        if let Err(error) = &reply
            && Refusal::of(error).is_none_or(|refusal| refusal.is_from_replica())
        {
            self.close();
        }
        reply
    }

    /// Closes the connection. The [`Link`](crate::connection::link::Link) then opens another.
    pub(crate) fn close(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.driver.end();
    }
}

/// The dialect of a cluster's node: `ShardedCluster` if it has sharded channels, and this user may call `PUBSUB`.
pub(crate) async fn dialect_of_node(connection: &mut MultiplexedConnection) -> RedisResult<Dialect> {
    let mut probe = redis::cmd("PUBSUB");
    match probe.arg("SHARDNUMSUB").exec_async(connection).await {
        Ok(()) => Ok(Dialect::ShardedCluster),
        Err(error) if Refusal::of(&error).is_some() => Ok(Dialect::Cluster),
        Err(error) => Err(error),
    }
}

/// Counts a caller as waiting for a reply while it lives.
pub(crate) struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closes the connection if the server does not answer a `PING` within `limit`.
///
/// Replies come in order, so the reply to a `PING` proves that all earlier calls were answered; calls need no timers of
/// their own. Sends a `PING` every `limit / 4`, or every `5 * limit` while the connection is idle.
async fn close_if_silent(wire: Weak<Wire>, limit: Duration) {
    let ping = redis::cmd("PING");
    let mut idle = 0;
    loop {
        tokio::time::sleep(limit / 4).await;
        let Some(wire) = wire.upgrade().filter(|wire| !wire.is_broken()) else {
            return;
        };
        idle = if wire.calls_in_flight() > 0 { 0 } else { idle + 1 };
        if idle % IDLE_CHECKS_PER_PING != 0 {
            continue;
        }
        let mut connection = wire.connection.clone();
        if timeout(limit, connection.send_packed_command(&ping))
            .await
            .is_err()
        {
            tracing::debug!(?limit, "Redis does not answer: the connection is closed");
            return wire.close();
        }
    }
}

/// Closes the connection when the sentinels replace the master: what the old one grants from then on will be lost.
async fn close_if_replaced(wire: Weak<Wire>, sentinels: Arc<Sentinels>, server: Host) {
    let Some(ended) = wire.upgrade().map(|wire| wire.ended()) else {
        return;
    };
    tokio::select! {
        () = ended => {}
        () = sentinels.replaced(&server) => {
            tracing::info!(%server, "the sentinels replace this master: the client leaves it");
            wire.upgrade().iter().for_each(|wire| wire.close());
        }
    }
}

/// Decodes the reply of `TIME` into microseconds. Returns `None` if it is malformed or too large.
fn time(value: &Value) -> Option<u64> {
    let [seconds, micros] = list(value)? else {
        return None;
    };
    integer(seconds)?
        .checked_mul(1_000_000)?
        .checked_add(integer(micros)?)
}
