//! Sentinels: finds the master that they name, and leaves a master that they replace.
//!
//! The client asks one sentinel after the other for the master, and takes the first answer that is not behind an earlier
//! one. It also listens to all of them, because only the one that carries out a failover announces its steps:
//!
//! | it announces | it then answers with | the client |
//! |---|---|---|
//! | `+failover-state-send-slaveof-noone` | the old master, and the state of the failover | leaves its server and waits |
//! | `+promoted-slave` | the new master | connects to the new master |
//! | `-failover-abort-slave-timeout` | the old master | connects to the old master |
//! | `+switch-master`, as all sentinels do | the new master | connects to the new master |
//!
//! While the client waits, it asks that sentinel every second, and waits on as long as the sentinel says that it promotes
//! a replica. The sentinel gives up after its `failover-timeout`, and the client a few seconds after the sentinel's last
//! answer.
//!
//! The old master accepts writes for up to ten seconds after `+promoted-slave`. The new one never gets these writes. A
//! client that leaves at the first step sends none of them.

mod answer;
mod state;

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryFutureExt};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo};
use tenure_backend::BackendError;
use tenure_endpoint::{Host, addresses};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::connection::driver::{Driver, handshake, log_in};
use crate::connection::stream::Streams;
use crate::topology::SentinelConfig;

pub(crate) use answer::{Answer, Failure};
use answer::{no_master, silent};
use state::State;

/// If a sentinel has not answered after this time, the next one is asked too.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Interval at which a sentinel is asked while it announces nothing, to find one that has died in silence.
const ASK_INTERVAL: Duration = Duration::from_secs(5);

/// The same while the sentinel promotes a replica.
const PROMOTION_INTERVAL: Duration = Duration::from_secs(1);

/// Pauses before the client tries again to listen to a sentinel: `FIRST_PAUSE` if the client has listened to it until
/// then, because it may announce a step meanwhile. After a failed attempt twice as long as before, up to `LAST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// The channels of a sentinel on which the client listens: they announce the steps of a failover that change the
/// sentinel's answer.
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
    /// What the last accepted answer says about the master.
    master: watch::Sender<Master>,
}

#[derive(Clone, PartialEq, Eq)]
enum Master {
    /// No sentinel has answered.
    Unknown,
    Named(Host),
    /// A sentinel is promoting a replica. Until this time, the client uses no master unless one is named. Each answer of
    /// the sentinel moves that time.
    Promoting(Instant),
}

/// A connection on which a sentinel announces the steps of failovers.
struct Subscription {
    connection: MultiplexedConnection,
    driver: Driver,
    announced: UnboundedReceiver<PushInfo>,
}

/// What the doctor finds out about a sentinel.
pub(crate) struct Examined {
    pub(crate) sentinel: Host,
    pub(crate) answer: Result<Answer, Failure>,
    /// Why the client cannot listen to the sentinel, although it answers.
    pub(crate) not_subscribed: Option<Failure>,
}

impl Sentinels {
    pub(crate) fn new(config: SentinelConfig, streams: Streams, limit: Duration) -> Self {
        let state = State::new(config.sentinels.clone());
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
        self.state.lock().known()
    }

    /// Number of the master's replicas, including those that are down.
    pub(crate) fn replicas(&self) -> u64 {
        self.state.lock().replicas()
    }

    /// The master that the last accepted answer names. `None` before the first answer, and while a replica is promoted.
    pub(crate) fn master(&self) -> Option<Host> {
        match &*self.master.borrow() {
            Master::Named(host) => Some(host.clone()),
            Master::Unknown | Master::Promoting(_) => None,
        }
    }

    /// The time until which the client waits for a promotion, unless a sentinel reports it again. `None` if the client
    /// does not wait now.
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
        // Cannot fail: `self` holds the channel's sender.
        let _ = self.master.subscribe().wait_for(is_replaced).await;
    }

    /// Returns the address of the master. While a sentinel reports that it promotes a replica, first waits until a
    /// master is named.
    pub(crate) async fn locate(&self) -> Result<Host, BackendError> {
        loop {
            let mut master = self.master.subscribe();
            if let Some(until) = self.promoting_until() {
                let named = master.wait_for(|master| matches!(master, Master::Named(_)));
                // The wait has a limit, because a sentinel that dies meanwhile announces no end.
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
        // A silent sentinel may know more than those that are behind, so it gets half of the time to answer. The other
        // half is left to connect to the master.
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
        // If all answers are behind, takes the newest: the sentinels may have been set up again, and their epochs then
        // start at 0.
        match behind {
            Some(newest) => {
                let mut state = self.state.lock();
                state.forget_epochs();
                Ok(self.learn(&mut state, newest))
            }
            None => Err(no_master(&self.config.master, &known, &failures)),
        }
    }

    /// Asks all sentinels at once, in case one knows of a failover. Learns from credible answers that come soon.
    pub(crate) async fn ask_again(&self) {
        let known = self.known();
        let mut asked: FuturesUnordered<_> = known.iter().map(|host| self.ask(host)).collect();
        let learning = async {
            while let Some(answer) = asked.next().await {
                if let Ok(answer) = answer {
                    self.heed(answer);
                }
            }
        };
        let _ = timeout(NEXT_AFTER, learning).await;
    }

    /// For the doctor: asks all sentinels, one after the other, and tries to subscribe to those that answer.
    ///
    /// Leaves a host out if another one leads to the same sentinel: the URL may name a sentinel by its host name, and the
    /// other sentinels name it by its address.
    pub(crate) async fn ask_all(&self) -> Vec<Examined> {
        let (mut answers, mut asked) = (Vec::new(), HashSet::new());
        let is_address = |host: &Host| host.name().parse::<IpAddr>().is_ok();
        let (numbers, names): (Vec<_>, Vec<_>) = self.known().into_iter().partition(is_address);
        for sentinel in numbers.into_iter().chain(names) {
            let found = timeout(self.limit, addresses(&sentinel)).await;
            let found: HashSet<_> = found.into_iter().flatten().flatten().collect();
            if !asked.is_disjoint(&found) {
                continue;
            }
            asked.extend(found);
            let answer = self.within(self.ask(&sentinel)).await;
            let not_subscribed = match answer {
                Ok(_) => self.subscribe(&sentinel).await.err(),
                Err(_) => None,
            };
            answers.push(Examined {
                sentinel,
                answer,
                not_subscribed,
            });
        }
        answers
    }

    async fn ask(&self, sentinel: &Host) -> Result<Answer, Failure> {
        let login = handshake(&self.config.login).await?;
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

    /// Learns from an answer while the client looks for a master. Returns the answer as the error if it is behind an
    /// earlier one.
    fn consider(&self, answer: Answer) -> Result<Master, Answer> {
        let mut state = self.state.lock();
        if state.is_behind(&answer) {
            return Err(answer);
        }
        Ok(self.learn(&mut state, answer))
    }

    /// Learns from an answer while the client has a master, unless [`State::is_credible`] rejects it.
    fn heed(&self, answer: Answer) {
        let mut state = self.state.lock();
        if state.is_credible(&answer) {
            self.learn(&mut state, answer);
        }
    }

    fn learn(&self, state: &mut State, answer: Answer) -> Master {
        let master = match state.learn(&answer) {
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
        // Cannot fail: `self` holds the channel's sender.
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

    /// Listens to a sentinel. While that fails, asks it instead; ends once the client no longer knows it.
    async fn listen_while_known(&self, sentinel: Host) -> Host {
        let mut pause = LAST_PAUSE;
        while self.known().contains(&sentinel) {
            let Err(failure) = self.listen(&sentinel, &mut pause).await;
            tracing::debug!(%sentinel, %failure, "the client does not listen to this sentinel");
            sleep(pause).await;
            pause = (2 * pause).min(LAST_PAUSE);
            // A sentinel that refuses RESP3 or SUBSCRIBE still answers.
            if let Ok(answer) = self.within(self.ask(&sentinel)).await {
                self.heed(answer);
            }
        }
        self.state.lock().forget(&sentinel);
        sentinel
    }

    /// Listens to one sentinel until it can no longer be reached. Once it has answered, sets `pause` to `FIRST_PAUSE`.
    async fn listen(&self, sentinel: &Host, pause: &mut Duration) -> Result<Infallible, Failure> {
        let Subscription {
            mut connection,
            mut announced,
            driver: _driver,
        } = self.subscribe(sentinel).await?;
        loop {
            // Drops the messages so far, of which many may be about other masters: one answer covers them all.
            while announced.try_recv().is_ok() {}
            // Asks before the first message too: the client may have missed one while it was not subscribed.
            let asking = Answer::ask(&mut connection, sentinel, &self.config.master);
            let answer = self.within(asking).await?;
            *pause = FIRST_PAUSE;
            let ask_after = match answer.is_promoting {
                true => PROMOTION_INTERVAL,
                false => ASK_INTERVAL,
            };
            self.heed(answer);
            timeout(ask_after, step(&mut announced)).await.unwrap_or(Ok(()))?;
        }
    }

    async fn subscribe(&self, sentinel: &Host) -> Result<Subscription, Failure> {
        let (sender, announced) = unbounded_channel();
        let settings = AsyncConnectionConfig::new().set_push_sender(sender);
        // In this version of the protocol, one connection can both subscribe and ask.
        let login = handshake(&self.config.login).await?;
        let login = login.set_protocol(ProtocolVersion::RESP3);
        let (mut connection, driver) = self.within(self.log_in(sentinel, &login, settings)).await?;
        self.within(connection.subscribe(&STEPS).map_err(Failure::from))
            .await?;
        Ok(Subscription {
            connection,
            driver,
            announced,
        })
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        timeout(self.limit, work).await.unwrap_or_else(|_| Err(silent()))
    }
}

/// Waits until a sentinel announces a step of a failover. Fails if the connection ends.
async fn step(announced: &mut UnboundedReceiver<PushInfo>) -> Result<(), Failure> {
    loop {
        match announced.recv().await.map(|push| push.kind) {
            Some(PushKind::Disconnection) | None => return Err(silent()),
            Some(PushKind::Message) => return Ok(()),
            Some(_) => {}
        }
    }
}
