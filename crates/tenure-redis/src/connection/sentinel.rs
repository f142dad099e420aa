//! Sentinels: finds the master that they name, and notices when they name another.
//!
//! The client asks one sentinel after the other, and takes the first answer that is not behind an earlier one. It also
//! subscribes to one of them, so that it leaves a demoted master as soon as that sentinel knows of the switch.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryFutureExt};
use parking_lot::Mutex;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, Value};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::Host;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::connection::connect_error::ConnectError;
use crate::connection::driver::log_in;
use crate::connection::stream::Streams;
use crate::topology::SentinelConfig;

/// If a sentinel has not answered after this time, the next one is asked too.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Interval of the pings that find a sentinel that has died in silence.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Pause before the client subscribes to the next sentinel.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The channel on which a sentinel announces that a master was replaced.
const SWITCH: &str = "+switch-master";

/// What a client knows about its sentinels and their master.
pub(crate) struct Sentinels {
    config: SentinelConfig,
    streams: Streams,
    /// Time limit for each step of listening to a sentinel.
    limit: Duration,
    state: Mutex<State>,
    master: watch::Sender<Option<Host>>,
}

struct State {
    /// The sentinels of the URL and those that they named. The one whose answer was accepted last is the first.
    known: Vec<Host>,
    /// The configuration epoch of the last answer that was accepted. It grows with each failover.
    epoch: u64,
}

/// Properties of a master or a sentinel, as a sentinel reports them.
type Fields = HashMap<String, String>;

/// One sentinel's answer.
pub(crate) struct Answer {
    sentinel: Host,
    pub(crate) master: Host,
    epoch: u64,
    /// The other sentinels of this master.
    others: Vec<Host>,
    /// Number of sentinels that must agree that the master is down.
    pub(crate) quorum: u64,
}

impl Sentinels {
    pub(crate) fn new(config: SentinelConfig, streams: Streams, limit: Duration) -> Self {
        let state = State {
            known: config.sentinels.clone(),
            epoch: 0,
        };
        Sentinels {
            config,
            streams,
            limit,
            state: Mutex::new(state),
            master: watch::Sender::new(None),
        }
    }

    /// The sentinels that the client knows.
    pub(crate) fn known(&self) -> Vec<Host> {
        self.state.lock().known.clone()
    }

    /// The master that the last accepted answer names. `None` before the first answer.
    pub(crate) fn master(&self) -> Option<Host> {
        self.master.borrow().clone()
    }

    /// Resolves when the sentinels name another master than `server`.
    pub(crate) async fn replaced(&self, server: &Host) {
        let mut named = self.master.subscribe();
        // Fails only if the sender is gone, and `self` has it.
        let _ = named
            .wait_for(|master| master.as_ref().is_some_and(|master| master != server))
            .await;
    }

    /// Returns the address of the master. Asks the next sentinel if one fails, does not answer soon, or is behind.
    pub(crate) async fn locate(&self) -> Result<Host, BackendError> {
        let known = self.known();
        let mut next = known.iter();
        let mut asked: FuturesUnordered<_> = next.by_ref().take(1).map(|host| self.ask(host)).collect();
        let (mut behind, mut failures) = (None::<Answer>, Vec::new());
        loop {
            let answer = tokio::select! {
                answer = asked.next() => match answer {
                    Some(answer) => Some(answer),
                    None => break,
                },
                () = sleep(NEXT_AFTER), if next.len() > 0 => None,
            };
            match answer {
                Some(Ok(answer)) if answer.epoch >= self.state.lock().epoch => {
                    return Ok(self.learn(answer));
                }
                Some(Ok(answer)) => {
                    let is_newest = behind.as_ref().is_none_or(|other| other.epoch < answer.epoch);
                    behind = if is_newest { Some(answer) } else { behind };
                }
                Some(Err(failure)) => failures.push(failure),
                None => {}
            }
            asked.extend(next.next().map(|host| self.ask(host)));
        }
        // The sentinels may have been set up again, with epochs that start at 0.
        match behind {
            Some(newest) => Ok(self.learn(newest)),
            None => Err(self.error(&known, failures)),
        }
    }

    /// Error for sentinels of which none named the master. If all fail alike, for a reason that an operator must
    /// remove, the error is permanent.
    fn error(&self, asked: &[Host], failures: Vec<Failure>) -> BackendError {
        let master = &self.config.master;
        let all = |kind: &Failure| failures.iter().all(|failure| failure == kind);
        let hosts = asked.iter().map(Host::to_string).collect::<Vec<_>>().join(", ");
        let (fault, message) = if all(&Failure::UnknownMaster) {
            let message = format!(
                "the sentinels {hosts} monitor no master `{master}`: write the name that `SENTINEL MASTERS` shows into the \
                 URL's path"
            );
            (Fault::Invalid, message)
        } else if all(&Failure::NotASentinel) {
            let message = format!(
                "{hosts} is no sentinel: name the sentinels, which usually listen at port 26379, or write `redis://HOST` for \
                 a single server"
            );
            (Fault::Invalid, message)
        } else if all(&Failure::Login) {
            let message = "the sentinels refuse the login: name their user in `sentinel_user` and the file of their \
                           password in `sentinel_password_file`; the URL's user and password are those of the servers";
            (Fault::Denied, message.to_owned())
        } else {
            let message = format!("no sentinel names the master `{master}`: see whether they run at {hosts}");
            (Fault::Unavailable, message)
        };
        let why: Vec<_> = failures.iter().map(Failure::to_string).collect();
        BackendError::because(fault, Effect::None, message, why.join("; "))
    }

    /// Records an answer, and puts its sentinel first.
    fn learn(&self, answer: Answer) -> Host {
        let mut state = self.state.lock();
        state.known = vec![answer.sentinel];
        for other in answer.others.iter().chain(&self.config.sentinels) {
            if !state.known.contains(other) {
                state.known.push(other.clone());
            }
        }
        state.epoch = answer.epoch;
        self.master.send_if_modified(|master| {
            let before = master.replace(answer.master.clone());
            before.as_ref() != Some(&answer.master)
        });
        answer.master
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

    /// Asks one sentinel for the master, and for the other sentinels.
    async fn ask(&self, sentinel: &Host) -> Result<Answer, Failure> {
        let info = self.config.login.info()?;
        let stream = self.streams.open(sentinel).await?;
        let (mut connection, _driver) = log_in(stream, &info, AsyncConnectionConfig::new()).await?;
        let mut questions = redis::pipe();
        for question in ["GET-MASTER-ADDR-BY-NAME", "MASTER", "SENTINELS"] {
            questions.cmd("SENTINEL").arg(question).arg(&self.config.master);
        }
        let (address, master, others): (Option<(String, u16)>, Fields, Vec<Fields>) =
            questions.query_async(&mut connection).await?;
        let (name, port) = address.ok_or(Failure::UnknownMaster)?;
        let number = |name| master.get(name).and_then(|value| value.parse().ok());
        let host = |fields: &Fields| Some(Host::new(fields.get("ip")?, fields.get("port")?.parse().ok()?));
        Ok(Answer {
            sentinel: sentinel.clone(),
            master: Host::new(name, port),
            epoch: number("config-epoch").unwrap_or(0),
            quorum: number("quorum").unwrap_or(0),
            others: others.iter().filter_map(host).collect(),
        })
    }

    /// Asks again whenever a sentinel announces that a master was replaced. Runs until it is dropped.
    pub(crate) async fn follow(&self) {
        loop {
            for sentinel in self.known() {
                let Err(failure) = self.listen(&sentinel).await;
                tracing::debug!(%sentinel, %failure, "the client listens to the next sentinel");
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Listens to one sentinel until it can no longer be reached.
    async fn listen(&self, sentinel: &Host) -> Result<Infallible, Failure> {
        let (mut sink, mut stream) = self.within(self.subscribe(sentinel)).await?;
        loop {
            // Asks before the first message too: a switch may have come while the client was subscribed to no sentinel.
            let answer = self.within(self.ask(sentinel)).await?;
            if answer.epoch >= self.state.lock().epoch {
                self.learn(answer);
            }
            self.switch(&mut sink, &mut stream).await?;
        }
    }

    async fn subscribe(&self, sentinel: &Host) -> Result<(PubSubSink, PubSubStream), Failure> {
        let info = self.config.login.info()?;
        let stream = self.streams.open(sentinel).await?;
        let (mut sink, stream) = PubSub::new(&info, stream).await?.split();
        sink.subscribe(SWITCH).await?;
        Ok((sink, stream))
    }

    /// Waits until the sentinel announces a switch. Fails if the sentinel no longer answers.
    async fn switch(&self, sink: &mut PubSubSink, stream: &mut PubSubStream) -> Result<(), Failure> {
        loop {
            tokio::select! {
                message = stream.next() => return message.map(drop).ok_or_else(silent),
                () = sleep(PING_INTERVAL) => {
                    self.within(sink.ping::<Value>().map_err(Failure::from)).await?;
                }
            }
        }
    }

    async fn within<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        timeout(self.limit, work).await.unwrap_or_else(|_| Err(silent()))
    }
}

/// Why a sentinel did not name the master.
#[derive(PartialEq, Eq)]
pub(crate) enum Failure {
    UnknownMaster,
    NotASentinel,
    /// The sentinel refused the user or the password, or asks for one.
    Login,
    /// Any other failure, such as a sentinel that cannot be reached. The text says why.
    Silent(String),
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Redis(error) => error.into(),
            ConnectError::Translated(error) => error.into(),
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        let why = error.source().map_or_else(String::new, |why| format!(": {why}"));
        Failure::Silent(format!("{error}{why}"))
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let words = error.to_string();
        let is_login = error.kind() == ErrorKind::AuthenticationFailed
            || ["NOAUTH", "WRONGPASS", "NOPERM", "AUTH "]
                .iter()
                .any(|word| words.contains(word));
        if words.contains("unknown command") {
            Failure::NotASentinel
        } else if words.contains("No such master") {
            Failure::UnknownMaster
        } else if is_login {
            Failure::Login
        } else {
            Failure::Silent(words)
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::UnknownMaster => "a sentinel monitors no master of this name",
            Failure::NotASentinel => "a host is no sentinel",
            Failure::Login => "a sentinel refuses the login",
            Failure::Silent(why) => why,
        })
    }
}

fn silent() -> Failure {
    Failure::Silent("a sentinel did not answer".to_owned())
}
