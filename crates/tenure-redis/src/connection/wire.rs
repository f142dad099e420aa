//! One connection to the server. Calls are pipelined: each is sent without waiting for earlier replies, and replies
//! come in the same order.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, InfoDict, Pipeline, RedisResult, Value};
use tenure_backend::{BackendError, Effect, Instant, LockKey, ServerClock};
use tenure_endpoint::Host;
use tokio::time::timeout;

use crate::claims::refusal::{Refusal, from_replica, translate};
use crate::claims::script::{Command, Dialect};
use crate::connection::acknowledge::Acknowledger;
use crate::connection::connect_error::{self, ConnectError, not_yet_master};
use crate::connection::dial::Dialer;
use crate::connection::driver::{Driver, log_in};
use crate::connection::greeting::{Greeting, Role, time};
use crate::connection::sentinel::Sentinels;
use crate::connection::traffic::Traffic;
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
    /// Time until which the server must place no claim; see [`recovers_until`](crate::connection::recovery).
    pub(crate) recovers_until: Option<Instant>,
    /// The server said during the login that it is a replica. Always false in a cluster, where a replica refuses calls.
    is_replica: bool,
    /// `ROLE` travels with each call that writes, because `REPLICAOF` closes no connection.
    tells_role: bool,
    /// The calls in flight, and the time at which the server last sent something.
    pub(crate) traffic: Arc<Traffic>,
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
        let (config, traffic) = (&dialer.config, Arc::default());
        let stream = dialer.streams.open(&server, Some(&traffic)).await?;
        let login = dialer.handshake().await?;
        let settings = AsyncConnectionConfig::new().set_pipeline_buffer_size(PIPELINE_BUFFER);
        let begun = config.clock.now();
        let (mut connection, driver) = log_in(stream, &login, settings).await?;
        let round_trip = config.clock.now() - begun;
        let dialect = match &dialer.moves {
            None => Dialect::Alone,
            Some(_) => dialect_of_node(&mut connection).await?,
        };
        let greeting = Greeting::exchange(&mut connection, config, &server, dialect).await?;
        let tells_role = dialect == Dialect::Alone && greeting.role.is_ok();
        let role = match (greeting.role, dialer.sentinels()) {
            (Ok(role), _) => role,
            (Err(refusal), Some(_)) => return Err(refusal.into()),
            (Err(_), None) => Role::by_info(&mut connection).await?,
        };
        if let Some(sentinels) = dialer.sentinels() {
            let Role::Master { replicas } = role else {
                return Err(not_yet_master(&server).into());
            };
            // This master has fewer replicas than the sentinels know of. One may have left it to be promoted, which
            // only one sentinel may know yet, so all are asked.
            if replicas.is_none_or(|replicas| replicas < sentinels.replicas()) {
                sentinels.ask_again().await;
            }
            // A sentinel may have announced a promotion since this server was chosen.
            if sentinels.replaced(&server).now_or_never().is_some() {
                return Err(not_yet_master(&server).into());
            }
        }
        let acknowledger = match config.acknowledgement {
            None => None,
            Some(wanted) => Some(Acknowledger::open(dialer, &server, &mut connection, wanted).await?),
        };
        let wire = Arc::new(Wire {
            dialect,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            connection,
            clock: ServerClock::new(greeting.time, greeting.arrived),
            round_trip: round_trip.min(greeting.round_trip),
            recovers_until: greeting.recovers_until,
            is_replica: dialect == Dialect::Alone && role == Role::Replica,
            tells_role,
            traffic,
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
        self.traffic.calls_in_flight()
    }

    /// Counts one more caller that waits for a reply, until the returned guard is dropped.
    pub(crate) fn count_call(&self) -> InFlight<'_> {
        self.traffic.call_begins();
        InFlight(&self.traffic)
    }

    /// Calls a script that writes nothing, which a replica may carry out too.
    pub(crate) async fn read(&self, command: Command) -> Result<Value, BackendError> {
        let _counted = self.count_call();
        let (reply, _) = self.run(command).await?;
        Ok(reply)
    }

    /// Calls a script that writes. Fails if the server is a replica, also one that takes writes
    /// (`replica-read-only no`): its master gets none of them.
    pub(crate) async fn call(&self, command: Command) -> Result<Value, BackendError> {
        let _counted = self.count_call();
        self.call_uncounted(command).await
    }

    /// Like [`call`](Self::call), but does not count this call: it is for a batch, of which each caller is counted.
    pub(crate) async fn call_uncounted(&self, mut command: Command) -> Result<Value, BackendError> {
        if self.is_replica {
            self.close();
            return Err(from_replica(Effect::None));
        }
        if self.tells_role {
            command.ask_role();
        }
        match self.run(command).await? {
            (reply, Role::Master { .. }) => Ok(reply),
            (_, Role::Replica) => {
                self.close();
                Err(from_replica(Effect::Unknown))
            }
        }
    }

    /// Sends a script call by its hash. If the server has lost the script, sends the source with `EVAL`, which stores
    /// and runs the script in one step, so it cannot be lost in between.
    async fn run(&self, command: Command) -> Result<(Value, Role), BackendError> {
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
        let mut alone = Pipeline::with_capacity(1);
        alone.add_command(command.clone());
        let reply = self.send(&alone).await;
        let (reply, _) = reply.map_err(|error| translate(&error))?;
        T::from_redis_value(reply).map_err(|_| error::unexpected_reply())
    }

    /// Sends a call, alone or with `ROLE` behind it. If the second reply names a master, the first came from that master:
    /// the server carries both out one after the other. Without `ROLE`, the role is a master's.
    ///
    /// Closes the connection if no reply comes, or if the server refuses the command as a replica.
    async fn send(&self, calls: &Pipeline) -> RedisResult<(Value, Role)> {
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(calls, 0, calls.len()).await;
        let reply = replies.and_then(|replies| {
            let mut replies = replies.into_iter();
            let reply = replies.next().unwrap_or(Value::Nil).extract_error()?;
            let role = replies.next().map_or(Role::MASTER, |role| Role::decode(&role));
            Ok((reply, role))
        });
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
pub(crate) struct InFlight<'a>(&'a Traffic);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.call_ends();
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
            tracing::debug!(%server, "the sentinels replace this master: the client leaves it");
            wire.upgrade().iter().for_each(|wire| wire.close());
        }
    }
}
