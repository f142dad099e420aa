//! Leader election: a mutex with the vocabulary of elections. The holder of the mutex is the leader.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Fairness, HolderStatus, LockKey, Mode};

use crate::acquire::{self, Acquire};
use crate::changes::{Changes, Scope, mutex_at};
use crate::engine::Engine;
use crate::engine::attempt::Patience;
use crate::error::Error;
use crate::guard::Guard;
use crate::lock::mutex::Mutex;
use crate::lock::options::Configure;
use crate::lock::scope::log_unconfirmed;

/// An election: of all candidates that [campaign](Election::campaign) for its name, one leads at a time.
///
/// The name is a key and the leader holds it as a mutex: `tenure show NAME` shows the leader and the candidates,
/// `tenure evict NAME --all` deposes the leader, and [`Client::mutex`](crate::Client::mutex) of that name is the same
/// lock. Candidates are elected in the order in which they began to campaign, if the store supports fair locks. An
/// `Election` contains no data and does no I/O.
///
/// # Guarantees
/// - While [`is_leader`](Leader::is_leader) is true for one leader, it is false for all others, as
///   [`is_held`](Guard::is_held) for a [`Guard`].
/// - When a leader dies, the next one is elected when the lease ends: within 30 s by default. There is no leader until
///   then.
/// - No guarantee that a paused leader sends nothing after its local deadline: only a [token](Guard::token) that the
///   resource checks protects against that.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let election = client.election("scheduler").label("10.0.0.5:8080");
/// let jobs = election.lead(async |leader| { println!("fenced by {:?}", leader.token()); 3 }).await?;
/// assert_eq!(jobs, 3);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    engine: Arc<Engine>,
    key: Result<LockKey, Error>,
    seat: Mutex,
}

impl Election {
    pub(crate) fn new(engine: &Arc<Engine>, name: &str) -> Self {
        let seat = Mutex::new(engine, name).set(|options| options.is_candidate = true);
        let in_order = engine.profile().serves(Mode::Exclusive, Fairness::Fifo);
        Election {
            engine: engine.clone(),
            key: LockKey::new(name).map_err(Error::from),
            seat: if in_order { seat.fair() } else { seat },
        }
    }

    /// Sets the lease: how long the candidates wait for a dead leader. The default is
    /// [`Settings::lease`](crate::Settings::lease), 30 s.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Election {
            seat: self.seat.lease(lease),
            ..self
        }
    }

    /// Limits each term to `time`, after which the lead is lost and the watchdog releases the lock. No limit by
    /// default.
    #[must_use]
    pub fn max_hold(self, time: Duration) -> Self {
        Election {
            seat: self.seat.max_hold(time),
            ..self
        }
    }

    /// Sets the label that others see for this candidate, for example the address at which the leader serves requests.
    ///
    /// On etcd it is the candidate's value, which Go's `Election.Observe` and `Leader` return; and
    /// [`leader`](Election::leader) and [`observe`](Election::observe) show the value of a leader in Go as its label.
    #[doc(alias = "value")]
    #[must_use]
    pub fn label(self, label: impl Into<Arc<str>>) -> Self {
        Election {
            seat: self.seat.label(label),
            ..self
        }
    }

    /// Waits until this candidate is elected, for as long as it takes.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate and leaves nothing behind, as [`Acquire`](crate::Acquire).
    ///
    /// # Errors
    /// Those of [`Mutex::lock`]. While the store is unavailable, the candidate waits.
    #[doc(alias = "elect")]
    pub fn campaign(&self) -> Acquire<Leader> {
        self.seat(Patience::Forever)
    }

    /// Waits until this candidate is elected, for at most `limit`.
    ///
    /// # Cancel safety
    /// The same as [`campaign`](Election::campaign).
    ///
    /// # Errors
    /// [`Error::Timeout`]: the candidate is withdrawn. Otherwise those of [`campaign`](Election::campaign).
    pub fn campaign_within(&self, limit: Duration) -> Acquire<Leader> {
        self.seat(Patience::Within(limit))
    }

    /// Runs `work` while this candidate leads: campaigns, runs it, and campaigns again whenever the lead is lost.
    ///
    /// When the lead is lost, `work` is dropped and its outcome is unknown, as in [`Guard::while_held`]; when this candidate is
    /// elected again, `work` is called again. When `work` ends by itself, the leader resigns and the output is returned, even
    /// if the store does not confirm the resignation: the watchdog retries it.
    ///
    /// In a spawned task, write the closure as `async move |leader|`: the compiler cannot tell yet that a future is `Send` if
    /// it borrows variables that the closure captured by reference (rust-lang/rust#110338).
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`, and withdraws the candidate or resigns.
    ///
    /// # Errors
    /// The same as [`campaign`](Election::campaign). [`Error::Closed`] after [`Client::close`](crate::Client::close), which
    /// ends the lead and the campaign: in a shutdown that is no failure.
    pub async fn lead<T>(&self, mut work: impl AsyncFnMut(&Leader) -> T) -> Result<T, Error> {
        loop {
            let leader = self.campaign().await?;
            match leader.while_held(work(&leader)).await {
                Ok(output) => {
                    log_unconfirmed(leader.resign().await);
                    return Ok(output);
                }
                Err(lost) => tracing::warn!(%lost, "the lead was lost: campaigning again"),
            }
        }
    }

    /// Like [`lead`](Election::lead), for work that returns a `Result`.
    ///
    /// The leader resigns also after an error of `work`.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`, and withdraws the candidate or resigns.
    ///
    /// # Errors
    /// The error of `work`; those of [`campaign`](Election::campaign), converted to its type.
    pub async fn try_lead<T, E: From<Error>>(
        &self,
        work: impl AsyncFnMut(&Leader) -> Result<T, E>,
    ) -> Result<T, E> {
        self.lead(work).await?
    }

    /// Returns the leader as shown by the store; `None` if there is no leader. The answer may be out of date at once.
    ///
    /// A key in use as another kind of lock, or for something other than a lock, has no leader.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is not a valid key; [`Error::Backend`], [`Error::Unsupported`],
    /// [`Error::Closed`].
    pub async fn leader(&self) -> Result<Option<HolderStatus>, Error> {
        let key = self.key.clone()?;
        let status = mutex_at(&self.engine, &key).await?;
        Ok(status.and_then(|status| status.holders.into_iter().next()))
    }

    /// Watches the leader and the candidates, starting with the current ones.
    ///
    /// While the key is in use as another kind of lock, or for something other than a lock, the watch shows no leader
    /// and no candidates, and continues.
    pub fn observe(&self) -> Changes {
        Changes::new(&self.engine, self.key.clone().map(Scope::Key))
    }
}

/// The lead of an election, while [`is_leader`](Leader::is_leader) is true. Dropping it resigns.
///
/// Dereferences to its [`Guard`] and thus has its methods: `token`, `check`, `lost`, `while_held`, `verify` and the
/// rest.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// # let client = tenure::connect("memory:").await?;
/// let leader = client.election("scheduler").campaign().await?;
/// let done = leader.while_held(async { "scheduled" }).await;
/// leader.resign().await?;
/// # assert_eq!(done, Ok("scheduled")); Ok(()) }
/// ```
#[must_use = "a leader that is dropped resigns"]
#[derive(Debug)]
pub struct Leader(Guard);

impl Leader {
    /// Returns true until the lead is lost or its local deadline passes: the same as [`is_held`](Guard::is_held).
    pub fn is_leader(&self) -> bool {
        self.0.is_held()
    }

    /// Gives up the lead and waits for confirmation: the same as [`resign`](Leader::resign).
    ///
    /// # Cancel safety
    /// If the future is dropped at any point, the watchdog resigns.
    ///
    /// # Errors
    /// Those of [`Guard::unlock`].
    pub async fn unlock(self) -> Result<(), Error> {
        self.0.unlock().await
    }

    /// Gives up the lead and waits for confirmation, so that the next candidate can be elected.
    ///
    /// # Cancel safety
    /// If the future is dropped at any point, the watchdog resigns.
    ///
    /// # Errors
    /// Those of [`Guard::unlock`].
    pub async fn resign(self) -> Result<(), Error> {
        self.0.unlock().await
    }
}

impl Deref for Leader {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

/// Converts a leader into its guard, to use it as an ordinary lock.
impl From<Leader> for Guard {
    fn from(leader: Leader) -> Guard {
        leader.0
    }
}

impl Election {
    fn seat(&self, patience: Patience) -> Acquire<Leader> {
        Acquire::one(self.seat.0.attempt(patience), |taken| {
            Leader(acquire::guard(taken))
        })
    }
}
