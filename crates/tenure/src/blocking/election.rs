//! Leader election, for threads: a lock that is held for as long as its holder lives, under the words of the field.

use std::time::Duration;

use tenure_backend::{FencingToken, HolderStatus};

use super::changes::Changes;
use super::guard::Guard;
use super::runtime::Runtime;
use crate::error::{Error, Lost};

/// An election: of all that [campaign](Election::campaign) for its name, one leads at a time: see
/// [`tenure::Election`](crate::Election).
///
/// # Panics
/// Every call that can wait panics on a thread that drives async tasks.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let client = tenure::blocking::connect("memory:")?;
/// let election = client.election("scheduler").label("10.0.0.5:8080");
/// let jobs = election.lead(|leader| {
///     let mut jobs = 0;
///     while jobs < 3 && leader.is_leader() {
///         jobs += 1;
///     }
///     jobs
/// })?;
/// assert_eq!(jobs, 3);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    inner: crate::Election,
    runtime: Runtime,
}

impl Election {
    pub(super) fn new(inner: crate::Election, runtime: &Runtime) -> Self {
        let runtime = runtime.clone();
        Election { inner, runtime }
    }

    fn map(self, change: impl FnOnce(crate::Election) -> crate::Election) -> Self {
        let Election { inner, runtime } = self;
        let inner = change(inner);
        Election { inner, runtime }
    }

    /// Sets the lease: how long a dead leader is waited for. The default is
    /// [`Settings::lease`](crate::Settings::lease), 30 s.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.map(|inner| inner.lease(lease))
    }

    /// Ends each term after that time: the lead is then lost, and the watchdog gives it back. No limit by default.
    #[must_use]
    pub fn max_hold(self, time: Duration) -> Self {
        self.map(|inner| inner.max_hold(time))
    }

    /// Sets what others see of this candidate: an address, say, at which the leader is to be asked.
    #[must_use]
    pub fn label(self, label: impl Into<std::sync::Arc<str>>) -> Self {
        self.map(|inner| inner.label(label))
    }

    /// Waits until this candidate is elected, for as long as it takes. Nothing ends the wait but
    /// [`Client::close`](super::Client::close).
    ///
    /// # Errors
    /// As [`Mutex::lock`](super::Mutex::lock); it waits for a store that is unavailable.
    pub fn campaign(&self) -> Result<Leader, Error> {
        self.elected(self.inner.campaign())
    }

    /// Waits until this candidate is elected, for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`]: the candidate is withdrawn; else as [`campaign`](Election::campaign).
    pub fn campaign_within(&self, limit: Duration) -> Result<Leader, Error> {
        self.elected(self.inner.campaign_within(limit))
    }

    fn elected(&self, campaign: impl Future<Output = Result<crate::Leader, Error>>) -> Result<Leader, Error> {
        Guard::take(&self.runtime, async { campaign.await.map(Into::into) }).map(Leader)
    }

    /// Runs `work` on this thread while this candidate leads: campaigns, runs it, and campaigns again whenever the lead is
    /// lost.
    ///
    /// When the lead is lost, `work` is not stopped: it asks the leader it is given, between its steps, and returns. What it
    /// gives then is dropped, another may have led at the same time, and when this candidate is elected once more, `work`
    /// is called once more. When `work` ends while it leads, the leader resigns and its output is returned, even if the
    /// resignation cannot be confirmed: the watchdog sees to that.
    ///
    /// # Errors
    /// As [`campaign`](Election::campaign).
    pub fn lead<T>(&self, mut work: impl FnMut(&Leader) -> T) -> Result<T, Error> {
        loop {
            let leader = self.campaign()?;
            match leader.while_leader(&mut work) {
                Ok(output) => {
                    if let Err(error) = leader.resign() {
                        tracing::warn!(%error, "a leader's work was done and its resignation is not confirmed");
                    }
                    return Ok(output);
                }
                Err(lost) => tracing::warn!(%lost, "the lead was lost: campaigning again"),
            }
        }
    }

    /// Who leads, as the store shows it; `None` while nobody does. One look, which is out of date at once.
    ///
    /// A key that holds another kind of lock, or something that is no lock, has no leader.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is no key; [`Error::Backend`], [`Error::Unsupported`], [`Error::Closed`].
    pub fn leader(&self) -> Result<Option<HolderStatus>, Error> {
        self.runtime.block_on(self.inner.leader())
    }

    /// Watches who leads and who campaigns, beginning with who does.
    ///
    /// While the key holds another kind of lock, or something that is no lock, nobody leads or campaigns; the watch goes on.
    pub fn observe(&self) -> Changes {
        Changes::new(self.inner.observe(), &self.runtime)
    }
}

/// A leader, for as long as [`is_leader`](Leader::is_leader) is true. Dropping it resigns, without waiting for that.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// # let client = tenure::blocking::connect("memory:")?;
/// let leader = client.election("scheduler").campaign()?;
/// for job in 1..=3 {
///     leader.check()?;
///     println!("job {job}, fenced by {:?}", leader.token());
/// }
/// leader.resign()
/// # }
/// ```
#[must_use = "a leader that is dropped resigns"]
#[derive(Debug)]
pub struct Leader(Guard);

impl Leader {
    /// The number that fences this term: greater than that of every term before it. `None` where the store has none.
    pub fn token(&self) -> Option<FencingToken> {
        self.0.token()
    }

    /// Whether it is believed to lead at this moment. Reads a clock, does no I/O.
    pub fn is_leader(&self) -> bool {
        self.0.is_held()
    }

    /// Goes on only while it leads: for the steps of a long work. Reads a clock, does no I/O.
    ///
    /// # Errors
    /// [`Lost`], and then for ever.
    pub fn check(&self) -> Result<(), Lost> {
        self.0.check()
    }

    /// The lock beneath: its claim, its deadline, [`Guard::verify`].
    pub fn guard(&self) -> &Guard {
        &self.0
    }

    /// Waits until the lead is lost, and says why: for a second thread that watches over the first.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn lost(&self) -> Lost {
        self.0.lost()
    }

    /// Waits until the lead is lost, for at most `limit`; `None` if it leads until then.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn lost_within(&self, limit: Duration) -> Option<Lost> {
        self.0.lost_within(limit)
    }

    /// Runs `work` on this thread, and answers what it gave if it led from its beginning to its end; see
    /// [`Guard::while_held`].
    ///
    /// # Errors
    /// [`Lost`] if the lead was lost before `work` had finished: what it gave is dropped.
    pub fn while_leader<T>(&self, work: impl FnOnce(&Leader) -> T) -> Result<T, Lost> {
        self.0.while_held(|_| work(self))
    }

    /// Gives the lead up, and confirms it: the next candidate may lead.
    ///
    /// # Errors
    /// As [`Guard::unlock`].
    ///
    /// # Panics
    /// On a thread that drives async tasks; the watchdog then resigns.
    pub fn resign(self) -> Result<(), Error> {
        self.0.unlock()
    }
}

/// The lock beneath, for whoever keeps it by other means.
impl From<Leader> for Guard {
    fn from(leader: Leader) -> Guard {
        leader.0
    }
}
