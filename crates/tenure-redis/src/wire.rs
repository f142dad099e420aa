//! One connection, shared by all calls: each is written as it comes, and answered in order.
//! How a lost one is replaced is in `link.rs`.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, ServerError, Value};
use tenure_backend::BackendError;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::answer::{integer, list};
use crate::clock::ServerClock;
use crate::dial::Dialer;
use crate::distance::Distance;
use crate::error::{self, NoConnection};
use crate::refusal::Refusal;
use crate::script::{Command, load_all};
use crate::together::{Gathering, Said, Wish};

/// How many calls may wait to be written; further ones wait for their turn.
const BUFFER: usize = 1024;

/// How many calls for a single claim may be under way; further ones wait for their turn. A renewal waits for none, and has
/// no more than these ahead of it, and the calls that carry many claims (`distance.rs` says how many): however many tasks
/// lock at once, what is held is kept.
const IN_TURN: usize = 256;

/// Every so many looks the server is asked although nobody waits for it: a connection that has died in silence is then found
/// before it is needed.
const IDLE: u32 = 20;

/// The number of the next connection.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A connection to the server, which knows our scripts. It lives until it breaks, or is dropped.
pub(crate) struct Wire {
    /// No other connection of this process has it.
    pub(crate) number: u64,
    connection: MultiplexedConnection,
    /// What is known of the server's clock: of this connection's server, for another may be reached by the next.
    pub(crate) clock: ServerClock,
    /// How many callers wait for an answer.
    under_way: Arc<AtomicUsize>,
    /// With so many, what else is asked for is gathered.
    alone: usize,
    gathering: Gathering,
    turns: Semaphore,
    /// Whether a call on it has failed: nobody waits until its task has noticed.
    broken: AtomicBool,
    driver: Driver,
    /// Its sender is dropped when the driver has ended.
    ended: watch::Receiver<()>,
}

impl Wire {
    /// Connects, says who we are, and teaches the server the scripts.
    pub(crate) async fn open(dialer: &Dialer) -> Result<Arc<Self>, BackendError> {
        let config = &dialer.config;
        let opening = timeout(config.connect_timeout, Self::connect(dialer));
        match opening.await {
            Ok(wire) => wire.map_err(|error| error::unreachable(config, error)),
            Err(_) => Err(error::too_slow(config)),
        }
    }

    async fn connect(dialer: &Dialer) -> Result<Arc<Self>, NoConnection> {
        let (config, under_way) = (&dialer.config, Arc::default());
        let stream = dialer.dial_for_calls(&under_way).await?;
        let clock = &config.clock;
        let greeted = clock.now();
        let settings = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(BUFFER);
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(&dialer.greeting()?, stream, settings).await?;
        let round_trip = clock.now() - greeted;
        let (alive, ended) = watch::channel(());
        let driver = tokio::spawn(async move {
            let _alive = alive;
            driver.await;
        });
        let driver = Driver(driver.abort_handle());
        let mut first = redis::pipe();
        for load in load_all() {
            first.add_command(load);
        }
        first.cmd("TIME");
        let taught = clock.now();
        let mut answers = connection.send_packed_commands(&first, 0, first.len()).await?;
        let round_trip = round_trip.min(clock.now() - taught);
        for answer in &answers {
            if let Value::ServerError(refusal) = answer {
                return Err(RedisError::from(refusal.clone()).into());
            }
        }
        let shown = answers.pop().as_ref().and_then(time).ok_or(NoConnection::Time)?;
        let wire = Arc::new_cyclic(|wire| Wire {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            connection,
            clock: ServerClock::new(shown, clock.now()),
            under_way,
            alone: config.alone,
            gathering: Gathering::new(wire, clock, Distance::new(round_trip, config.side_by_side)),
            turns: Semaphore::new(IN_TURN),
            broken: AtomicBool::new(false),
            driver,
            ended,
        });
        tokio::spawn(keep_watch(Arc::downgrade(&wire), config.command_timeout));
        Ok(wire)
    }

    /// Whether it is broken: nothing more is heard on it.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed) || self.driver.0.is_finished()
    }

    /// Resolves when the connection has ended. Does not keep it open.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.clone();
        async move { while ended.changed().await.is_ok() {} }
    }

    /// Calls a script. A server that has forgotten it is sent the script itself, which it runs and knows in one step: there
    /// is no moment in which it could be forgotten again.
    pub(crate) async fn call(&self, command: &Command) -> Result<Value, BackendError> {
        let _counted = Counted::new(&self.under_way);
        self.call_for_counted(command).await
    }

    /// The same for callers each of whom is counted.
    pub(crate) async fn call_for_counted(&self, command: &Command) -> Result<Value, BackendError> {
        let answer = match self.send(command.as_cmd()).await {
            Err(Failed::Refused(refusal)) if refusal.code() == "NOSCRIPT" => {
                self.send(&command.in_full()).await
            }
            answer => answer,
        };
        answer.map_err(BackendError::from)
    }

    /// Whether so much is under way that claims had better travel together.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) >= self.alone
    }

    /// Asks for a claim in a call with others.
    pub(crate) async fn ask_together(&self, wish: Wish) -> Result<Said, BackendError> {
        let _counted = Counted::new(&self.under_way);
        self.gathering.ask(wish).await
    }

    /// The same for a single claim, when it is its turn.
    ///
    /// # Cancel safety
    /// Dropped before its turn, nothing is sent.
    pub(crate) async fn call_in_turn(&self, command: &Command) -> Result<Value, BackendError> {
        let _turn = self.turns.acquire().await.map_err(|_| error::orphaned())?;
        // A kilobyte and a half, which those who travel together need not carry.
        Box::pin(self.call(command)).await
    }

    /// What the server's clock shows, in microseconds.
    pub(crate) async fn time(&self) -> Result<u64, BackendError> {
        let answer = self.ask(&redis::cmd("TIME")).await?;
        time(&answer).ok_or_else(error::nonsense)
    }

    /// Sends one command.
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, BackendError> {
        let _counted = Counted::new(&self.under_way);
        self.send(command).await.map_err(BackendError::from)
    }

    async fn send(&self, command: &Cmd) -> Result<Value, Failed> {
        let mut connection = self.connection.clone();
        let answer = answer(connection.send_packed_command(command).await);
        let over = match &answer {
            Ok(_) => false,
            Err(Failed::Refused(refusal)) => Refusal::of(refusal).is_of_a_replica(),
            Err(Failed::Unanswered(_)) => true,
        };
        if over {
            self.give_up();
        }
        answer
    }

    /// Closes the connection: whoever comes makes another.
    pub(crate) fn give_up(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.driver.0.abort();
    }
}

/// Why a call has no answer.
enum Failed {
    Refused(ServerError),
    Unanswered(RedisError),
}

impl From<Failed> for BackendError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refusal) => Refusal::of(&refusal).error(),
            Failed::Unanswered(error) => error::unanswered(&error),
        }
    }
}

fn answer(answered: Result<Value, RedisError>) -> Result<Value, Failed> {
    match answered {
        Ok(Value::ServerError(refusal)) => Err(Failed::Refused(refusal)),
        Ok(value) => Ok(value),
        Err(error) => Err(match ServerError::try_from(error) {
            Ok(refusal) => Failed::Refused(refusal),
            Err(error) => Failed::Unanswered(error),
        }),
    }
}

/// The task that reads and writes, which ends when this is dropped: also if connecting is given up on its way.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives the connection up when the server does not answer in time.
///
/// Answers come in order, so one that comes to a question of ours says that every call before it was answered: calls need
/// no timer of their own. A connection that is given up is closed, so that nothing lingers on it.
async fn keep_watch(wire: Weak<Wire>, limit: Duration) {
    let ping = redis::cmd("PING");
    let mut idle = 0;
    loop {
        tokio::time::sleep(limit / 4).await;
        let Some(wire) = wire.upgrade().filter(|wire| !wire.is_broken()) else {
            return;
        };
        idle = if wire.under_way.load(Ordering::Relaxed) > 0 {
            0
        } else {
            idle + 1
        };
        if idle % IDLE != 0 {
            continue;
        }
        let mut connection = wire.connection.clone();
        if timeout(limit, connection.send_packed_command(&ping))
            .await
            .is_err()
        {
            tracing::debug!(?limit, "Redis does not answer: the connection is given up");
            return wire.give_up();
        }
    }
}

/// Reads the answer of `TIME`, in microseconds. `None` if it is no time, or does not fit.
fn time(value: &Value) -> Option<u64> {
    let [seconds, micros] = list(value)? else {
        return None;
    };
    integer(seconds)?
        .checked_mul(1_000_000)?
        .checked_add(integer(micros)?)
}
