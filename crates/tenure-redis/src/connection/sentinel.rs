//! Sentinels: finds the master that they name, and leaves a master that they replace.
//!
//! The client asks one sentinel after the other for the master, and takes the first answer that is not behind an earlier
//! one. It also listens to all of them, because only the one that carries out a failover announces its steps:
//!
//! | it announces | it then names | the client |
//! |---|---|---|
//! | `+failover-state-send-slaveof-noone` | the old master, and the state of the failover | leaves its server and waits |
//! | `+promoted-slave` | the new master | connects to the new master |
//! | `-failover-abort-slave-timeout` | the old master | connects to the old master |
//! | `+switch-master`, as all sentinels do | the new master | connects to the new master |
//!
//! The old master accepts writes for up to ten seconds after the second step. The new one never gets these writes. A
//! client that leaves at the first step sends none of them.

mod answer;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryFutureExt};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo};
use tenure_backend::BackendError;
use tenure_endpoint::Host;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::connection::driver::{Driver, log_in};
use crate::connection::stream::Streams;
use crate::topology::SentinelConfig;

pub(crate) use answer::{Answer, Failure};
use answer::{no_master, silent};

/// If a sentinel has not answered after this time, the next one is asked too.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Interval of the pings that find a sentinel that has died in silence.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Pause before the client asks a sentinel again to which it cannot listen, and tries again to listen.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The longest time without a server while a replica is promoted. A sentinel looks at the replica every second. If it
/// still has not promoted it after this time, the client goes back to the old master.
const PROMOTION: Duration = Duration::from_secs(3);

/// The channels on which a sentinel announces the steps of a failover after which it answers differently.
const STEPS: [&str; 4] = [
    "+failover-state-send-slaveof-noone",
    "+promoted-slave",
    "-failover-abort-slave-timeout",
    "+switch-master",
];

/// What a client knows about its sentinels and their master.
pub(crate) struct Sentinels {
    config: SentinelConfig,
    streams: Streams,
    /// Time limit for each step of listening to a sentinel. Also that of an attempt to connect to the master.
    limit: Duration,
    state: Mutex<State>,
    /// Changes with each answer that is accepted.
    master: watch::Sender<Master>,
}

struct State {
    /// The sentinels of the URL and those that they named. The one whose answer was accepted last is the first.
    known: Vec<Host>,
    /// The configuration epoch of the last answer that was accepted.
    epoch: u64,
    replicas: u64,
    /// The sentinels that are promoting a replica, each with the time until which the client waits for that.
    promotions: HashMap<Host, Instant>,
}

#[derive(Clone, PartialEq, Eq)]
enum Master {
    /// No sentinel has answered.
    Unknown,
    Named(Host),
    /// A sentinel is promoting a replica, so there is no master to use before this time.
    Promoting(Instant),
}

impl Sentinels {
    pub(crate) fn new(config: SentinelConfig, streams: Streams, limit: Duration) -> Self {
        let state = State {
            known: config.sentinels.clone(),
            epoch: 0,
            replicas: 0,
            promotions: HashMap::new(),
        };
        Sentinels {
            config,
            streams,
            limit,
            state: Mutex::new(state),
            master: watch::Sender::new(Master::Unknown),
        }
    }

    /// The sentinels that the client knows.
    pub(crate) fn known(&self) -> Vec<Host> {
        self.state.lock().known.clone()
    }

    /// Number of the master's replicas, including those that are down.
    pub(crate) fn replicas(&self) -> u64 {
        self.state.lock().replicas
    }

    /// The master that the last accepted answer names. `None` before the first answer, and while a replica is promoted.
    pub(crate) fn master(&self) -> Option<Host> {
        match &*self.master.borrow() {
            Master::Named(host) => Some(host.clone()),
            Master::Unknown | Master::Promoting(_) => None,
        }
    }

    /// The time until which the client waits for a promotion. `None` if it does not wait now.
    pub(crate) fn promoting_until(&self) -> Option<Instant> {
        match *self.master.borrow() {
            Master::Promoting(until) => Some(until).filter(|until| Instant::now() < *until),
            Master::Unknown | Master::Named(_) => None,
        }
    }

    /// Resolves when the sentinels name another master than `server`, or begin to promote a replica.
    pub(crate) async fn replaced(&self, server: &Host) {
        let is_replaced = |master: &Master| match master {
            Master::Named(host) => host != server,
            Master::Promoting(_) => true,
            Master::Unknown => false,
        };
        // Fails only if the sender is gone, and `self` has it.
        let _ = self.master.subscribe().wait_for(is_replaced).await;
    }

    /// Returns the address of the master. While a sentinel promotes a replica, waits for the end of that, until
    /// [`PROMOTION`] has passed since the client learned of it.
    pub(crate) async fn locate(&self) -> Result<Host, BackendError> {
        loop {
            let mut master = self.master.subscribe();
            if let Some(until) = self.promoting_until() {
                let named = master.wait_for(|master| matches!(master, Master::Named(_)));
                // If the sentinel dies meanwhile, it announces nothing.
                let _ = timeout_at(until, named).await;
            }
            if let Master::Named(host) = self.ask_in_turn().await? {
                return Ok(host);
            }
        }
    }

    /// Asks for the master. Asks the next sentinel if one fails, does not answer soon, or is behind.
    async fn ask_in_turn(&self) -> Result<Master, BackendError> {
        let known = self.known();
        let mut next = known.iter();
        let mut asked: FuturesUnordered<_> = next.by_ref().take(1).map(|host| self.ask(host)).collect();
        let (mut behind, mut failures) = (None::<Answer>, Vec::new());
        // A sentinel that is silent may know more than those that are behind. Half of the time is left to connect.
        let patience = Instant::now() + self.limit / 2;
        loop {
            let answer = tokio::select! {
                biased;
                answer = asked.next() => match answer {
                    Some(answer) => Some(answer),
                    None => break,
                },
                () = sleep(NEXT_AFTER), if next.len() > 0 => None,
                () = sleep_until(patience), if next.len() == 0 && behind.is_some() => break,
            };
            match answer {
                Some(Ok(answer)) => match self.consider(answer) {
                    Ok(master) => return Ok(master),
                    Err(answer) => {
                        let is_newest = behind.as_ref().is_none_or(|other| other.epoch < answer.epoch);
                        behind = if is_newest { Some(answer) } else { behind };
                    }
                },
                Some(Err(failure)) => failures.push(failure),
                None => {}
            }
            asked.extend(next.next().map(|host| self.ask(host)));
        }
        // The sentinels may have been set up again, with epochs that start at 0.
        match behind {
            Some(newest) => Ok(self.learn(&mut self.state.lock(), newest)),
            None => Err(no_master(&self.config.master, &known, &failures)),
        }
    }

    /// Asks all sentinels at once, and learns from those that answer soon and know of a failover.
    pub(crate) async fn ask_again(&self) {
        let known = self.known();
        let mut asked: FuturesUnordered<_> = known.iter().map(|host| self.ask(host)).collect();
        let learning = async {
            while let Some(answer) = asked.next().await {
                // Two sentinels may contradict each other: the client stays with the one that it asked.
                let is_news = |answer: &Answer| answer.is_promoting || answer.epoch > self.state.lock().epoch;
                if let Some(answer) = answer.ok().filter(is_news) {
                    let _ = self.consider(answer);
                }
            }
        };
        let _ = timeout(NEXT_AFTER, learning).await;
    }

    /// Asks all sentinels, one after the other.
    pub(crate) async fn ask_all(&self) -> Vec<(Host, Result<Answer, Failure>)> {
        let mut answers = Vec::new();
        for sentinel in self.known() {
            let answer = self.within(self.ask(&sentinel)).await;
            answers.push((sentinel, answer));
        }
        answers
    }

    async fn ask(&self, sentinel: &Host) -> Result<Answer, Failure> {
        let login = self.config.login.info()?;
        let (mut connection, _driver) = self
            .log_in(sentinel, &login, AsyncConnectionConfig::new())
            .await?;
        Answer::ask(&mut connection, sentinel, &self.config.master).await
    }

    async fn log_in(
        &self,
        sentinel: &Host,
        login: &RedisConnectionInfo,
        settings: AsyncConnectionConfig,
    ) -> Result<(MultiplexedConnection, Driver), Failure> {
        let stream = self.streams.open(sentinel, None).await?;
        Ok(log_in(stream, login, settings).await?)
    }

    /// Learns from an answer. Returns the answer as the error if it is behind an earlier one.
    fn consider(&self, answer: Answer) -> Result<Master, Answer> {
        let mut state = self.state.lock();
        if answer.epoch < state.epoch {
            return Err(answer);
        }
        Ok(self.learn(&mut state, answer))
    }

    /// Records an answer, and puts its sentinel first.
    fn learn(&self, state: &mut State, answer: Answer) -> Master {
        state.known = vec![answer.sentinel.clone()];
        for other in answer.others.iter().chain(&self.config.sentinels) {
            if !state.known.contains(other) {
                state.known.push(other.clone());
            }
        }
        if answer.epoch != state.epoch {
            state.promotions.clear();
        }
        (state.epoch, state.replicas) = (answer.epoch, answer.replicas);
        let master = match state.record_promotion(&answer) {
            Some(until) => Master::Promoting(until),
            None => Master::Named(answer.master),
        };
        self.master.send_replace(master.clone());
        master
    }

    /// Listens to all sentinels that the client knows, from the first answer on. Runs until it is dropped.
    pub(crate) async fn follow(&self) {
        let mut learned = self.master.subscribe();
        let (mut followed, mut listening) = (HashSet::new(), FuturesUnordered::new());
        // Fails only if the sender is gone, and `self` has it.
        let _ = learned.wait_for(|master| *master != Master::Unknown).await;
        loop {
            for sentinel in self.known() {
                if followed.insert(sentinel.clone()) {
                    listening.push(self.listen_while_known(sentinel));
                }
            }
            tokio::select! {
                _ = learned.changed() => {}
                Some(sentinel) = listening.next() => {
                    followed.remove(&sentinel);
                }
            }
        }
    }

    /// Listens to a sentinel until the other sentinels no longer name it. While the client cannot listen, it asks.
    async fn listen_while_known(&self, sentinel: Host) -> Host {
        while self.state.lock().known.contains(&sentinel) {
            let Err(failure) = self.listen(&sentinel).await;
            tracing::debug!(%sentinel, %failure, "the client does not listen to this sentinel");
            sleep(RETRY_PAUSE).await;
            // A sentinel that refuses RESP3 or SUBSCRIBE still answers.
            if let Ok(answer) = self.within(self.ask(&sentinel)).await {
                let _ = self.consider(answer);
            }
        }
        sentinel
    }

    /// Listens to one sentinel until it can no longer be reached.
    async fn listen(&self, sentinel: &Host) -> Result<Infallible, Failure> {
        let (sender, mut announced) = unbounded_channel();
        let settings = AsyncConnectionConfig::new().set_push_sender(sender);
        // In this version of the protocol, one connection can both subscribe and ask.
        let login = self.config.login.info()?.set_protocol(ProtocolVersion::RESP3);
        let (mut connection, _driver) = self.within(self.log_in(sentinel, &login, settings)).await?;
        self.within(connection.subscribe(&STEPS).map_err(Failure::from))
            .await?;
        loop {
            // Asks before the first message too: the client may have missed one while it was not subscribed.
            let asking = Answer::ask(&mut connection, sentinel, &self.config.master);
            let _ = self.consider(self.within(asking).await?);
            while !self.has_announced(&mut connection, &mut announced).await? {}
        }
    }

    /// Waits for a message. Returns whether the sentinel announces a step of a failover. Fails if it no longer answers.
    async fn has_announced(
        &self,
        connection: &mut MultiplexedConnection,
        announced: &mut UnboundedReceiver<PushInfo>,
    ) -> Result<bool, Failure> {
        tokio::select! {
            push = announced.recv() => match push.map(|push| push.kind) {
                Some(PushKind::Disconnection) | None => Err(silent()),
                Some(kind) => Ok(kind == PushKind::Message),
            },
            () = sleep(PING_INTERVAL) => {
                let ping = redis::cmd("PING");
                self.within(ping.exec_async(connection).map_err(Failure::from)).await?;
                Ok(false)
            }
        }
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        timeout(self.limit, work).await.unwrap_or_else(|_| Err(silent()))
    }
}

impl State {
    /// Records whether the sentinel promotes a replica. Returns the time until which the client waits for a promotion:
    /// while one sentinel promotes a replica, the others know nothing of that.
    fn record_promotion(&mut self, answer: &Answer) -> Option<Instant> {
        let now = Instant::now();
        if answer.is_promoting {
            let sentinel = answer.sentinel.clone();
            self.promotions.entry(sentinel).or_insert(now + PROMOTION);
        } else {
            self.promotions.remove(&answer.sentinel);
        }
        self.promotions
            .values()
            .max()
            .filter(|until| now < **until)
            .copied()
    }
}
