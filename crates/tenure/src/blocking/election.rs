//! Leader election, for threads: a mutex with the vocabulary of elections.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::HolderStatus;

use super::adapter::{Blocking, blocking};
use super::changes::Changes;
use super::guard::{Guard, HoldsOne};
use crate::error::Error;
use crate::lock::scope::log_unconfirmed;

/// An election: of all candidates that campaign for its name, one leads at a time. See
/// [`tenure::Election`](crate::Election).
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
pub type Election = Blocking<crate::Election>;

blocking!(Election
    sets {
        lease(lease: Duration);
        max_hold(time: Duration);
        label(label: impl Into<Arc<str>>);
    }
    makes {
        observe() -> Changes;
    }
    waits {
        campaign() -> Leader;
        campaign_within(limit: Duration) -> Leader;
        leader() -> Option<HolderStatus>;
    }
);

impl Election {
    /// Campaigns, and runs `work` on this thread when this candidate is elected. Campaigns again whenever the lead is
    /// lost.
    ///
    /// When the lead is lost, `work` is not stopped: it should call `check` on its [`Leader`] between steps, and
    /// return on an error. `lead` then drops its output, because another leader may have worked at the same time, and
    /// runs `work` again after the next election of this candidate. If `work` ends while this candidate leads, `lead`
    /// resigns and returns the output, even if the store does not confirm the resignation: the watchdog retries it.
    ///
    /// # Errors
    /// Those of `campaign`. [`Error::Closed`] after `close`, which ends the lead and the campaign: in a shutdown that is no
    /// failure.
    pub fn lead<T>(&self, mut work: impl FnMut(&Leader) -> T) -> Result<T, Error> {
        loop {
            let leader = self.campaign()?;
            match leader.while_held(&mut work) {
                Ok(output) => {
                    log_unconfirmed(leader.resign());
                    return Ok(output);
                }
                Err(lost) => tracing::warn!(%lost, "the lead was lost: campaigning again"),
            }
        }
    }

    /// Like [`lead`](Election::lead), for work that returns a `Result`.
    ///
    /// # Errors
    /// The error of `work`; those of `campaign`, converted to `E`.
    pub fn try_lead<T, E: From<Error>>(&self, work: impl FnMut(&Leader) -> Result<T, E>) -> Result<T, E> {
        self.lead(work)?
    }
}

/// The lead of an election, while `is_leader` is true: see [`tenure::Leader`](crate::Leader). Dropping it resigns in
/// the background.
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
pub type Leader = Blocking<crate::Leader>;

blocking!(Leader ends {
    resign();
    unlock();
});

impl HoldsOne for crate::Leader {
    fn guard(&self) -> &crate::Guard {
        self
    }
}

/// Converts a leader into its guard, to use it as an ordinary lock.
impl From<Leader> for Guard {
    fn from(leader: Leader) -> Guard {
        leader.change(Into::into)
    }
}
