//! Leader election: a lock that is held for as long as its holder lives, under the words of the field.
//! Decides nothing itself: who leads is who holds.

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
use crate::lock::scope::log_unconfirmed;

/// An election: of all that [campaign](Election::campaign) for its name, one leads at a time.
///
/// The name is a key and the leader holds it as a mutex: `tenure show NAME` shows the leader and the candidates,
/// `tenure evict NAME --all` deposes, and [`Client::mutex`](crate::Client::mutex) of that name is the same lock. Candidates are elected in the
/// order in which they began to campaign, where the store has an order. It holds no data and does no I/O.
///
/// # Guarantees
/// - While a leader [leads](Leader::is_leader), no other believes that it does, as with every [`Guard`].
/// - When a leader dies, the next is elected when its lease ends: 30 s by default. Nobody leads until then.
/// - No guarantee that a leader which was paused sends nothing after its time: only the [token](Guard::token), checked
///   by what it writes to, protects against that.
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
        let seat = Mutex::new(engine, name);
        let in_order = engine.profile().serves(Mode::Exclusive, Fairness::Fifo);
        Election {
            engine: engine.clone(),
            key: LockKey::new(name).map_err(Error::from),
            seat: if in_order { seat.fair() } else { seat },
        }
    }

    /// Sets the lease: how long a dead leader is waited for. The default is
    /// [`Settings::lease`](crate::Settings::lease), 30 s.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Election {
            seat: self.seat.lease(lease),
            ..self
        }
    }

    /// Ends each term after that time: the lead is then lost, and the watchdog gives it back. No limit by default.
    #[must_use]
    pub fn max_hold(self, time: Duration) -> Self {
        Election {
            seat: self.seat.max_hold(time),
            ..self
        }
    }

    /// Sets what others see of this candidate: an address, say, at which the leader is to be asked.
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
    /// As [`Mutex::lock`]; it waits for a store that is unavailable.
    #[doc(alias = "elect")]
    pub fn campaign(&self) -> Acquire<Leader> {
        self.seat(Patience::Forever)
    }

    /// Waits until this candidate is elected, for at most `limit`.
    ///
    /// # Cancel safety
    /// As [`campaign`](Election::campaign).
    ///
    /// # Errors
    /// [`Error::Timeout`]: the candidate is withdrawn; else as [`campaign`](Election::campaign).
    pub fn campaign_within(&self, limit: Duration) -> Acquire<Leader> {
        self.seat(Patience::Within(limit))
    }

    /// Runs `work` while this candidate leads: campaigns, runs it, and campaigns again whenever the lead is lost.
    ///
    /// When the lead is lost, `work` is dropped and its outcome is unknown, as in [`Guard::while_held`]; when this candidate is
    /// elected again, `work` is called again. When `work` ends by itself, the leader resigns and the output is returned, even
    /// if the resignation cannot be confirmed: the watchdog goes on with it.
    ///
    /// In a spawned task, write the closure as `async move |leader|`: the compiler cannot tell yet that a future is `Send` if
    /// it borrows variables that the closure captured by reference (rust-lang/rust#110338).
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`, and withdraws the candidate or resigns.
    ///
    /// # Errors
    /// As [`campaign`](Election::campaign).
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

    /// Like [`lead`](Election::lead), for work that can fail: returns the error of `work`, or the election's as the same type.
    ///
    /// The leader resigns in both cases.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work`, and withdraws the candidate or resigns.
    ///
    /// # Errors
    /// The error of `work`; those of [`campaign`](Election::campaign), converted into it.
    pub async fn try_lead<T, E: From<Error>>(
        &self,
        work: impl AsyncFnMut(&Leader) -> Result<T, E>,
    ) -> Result<T, E> {
        self.lead(work).await?
    }

    /// Who leads, as the store shows it; `None` while nobody does. One look, which is out of date at once.
    ///
    /// A key that holds another kind of lock, or something that is no lock, has no leader.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is no key; [`Error::Backend`], [`Error::Unsupported`], [`Error::Closed`].
    pub async fn leader(&self) -> Result<Option<HolderStatus>, Error> {
        let key = self.key.clone()?;
        let status = mutex_at(&self.engine, &key).await?;
        Ok(status.and_then(|status| status.holders.into_iter().next()))
    }

    /// Watches who leads and who campaigns, beginning with who does.
    ///
    /// While the key holds another kind of lock, or something that is no lock, nobody leads or campaigns; the watch goes on.
    pub fn observe(&self) -> Changes {
        Changes::new(&self.engine, self.key.clone().map(Scope::Key))
    }
}

/// A leader, for as long as [`is_leader`](Leader::is_leader) is true. Dropping it resigns.
///
/// It dereferences to its [`Guard`], whose methods it has: `token`, `check`, `lost`, `while_held`, `verify` and the rest.
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
    /// Whether it is believed to lead at this moment: [`is_held`](Guard::is_held) in the words of elections.
    pub fn is_leader(&self) -> bool {
        self.0.is_held()
    }

    /// Gives the lead up, and confirms it: [`resign`](Leader::resign) in the words of locks.
    ///
    /// # Cancel safety
    /// Dropped at any point, the watchdog resigns.
    ///
    /// # Errors
    /// As [`Guard::unlock`].
    pub async fn unlock(self) -> Result<(), Error> {
        self.0.unlock().await
    }

    /// Gives the lead up, and confirms it: the next candidate may lead.
    ///
    /// # Cancel safety
    /// Dropped at any point, the watchdog resigns.
    ///
    /// # Errors
    /// As [`Guard::unlock`].
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

/// The guard without the words of elections.
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
