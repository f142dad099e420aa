//! Renewal: keeping claims alive, one by one in a batch, and learning why one is gone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{BackendError, ClaimRef, Instant, TokenRun};

/// A wish to keep one claim alive.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// Which claim.
    pub who: ClaimRef,
    /// For how long from the moment the store acts.
    pub lease: Duration,
    /// In which phase: a claim in another one is left as it is and answered `Gone(Missing)`.
    pub only: Phase,
    /// Lifts the key's token counter to at least the last token of this run, and records the run as the claim's,
    /// in one atomic step with "the claim is alive". A quorum writes its maximum back with it.
    pub raise: Option<TokenRun>,
}

/// In which phase a claim must be to be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Only while it waits in the queue.
    Waiting,
    /// Only while it holds the key.
    Granted,
    /// In both.
    Either,
}

/// What became of one renewal.
#[derive(Debug)]
pub enum Renewed {
    /// The claim is alive.
    Alive {
        /// As in [`Grant::held_from`](crate::Grant).
        held_from: Instant,
        /// As in [`Grant::lease`](crate::Grant).
        lease: Duration,
    },
    /// The claim is gone for good; renewal never re-creates one.
    Gone(Loss),
    /// Nobody knows: it may have been renewed. The claim still stands until its deadline.
    Unknown(BackendError),
}

/// Why a claim that was granted is gone, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its lease ended without a renewal.
    Expired,
    /// Somebody took it away.
    Evicted {
        /// Who, if they said so.
        by: Option<Arc<str>>,
    },
    /// The session or connection that carried it ended.
    Session,
    /// There is no record of it, and nobody knows why.
    Missing,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Expired => f.write_str("its lease ended"),
            Loss::Evicted { by: Some(by) } => write!(f, "it was evicted by {by}"),
            Loss::Evicted { by: None } => f.write_str("it was evicted"),
            Loss::Session => f.write_str("the session that carried it ended"),
            Loss::Missing => f.write_str("the store has no record of it"),
        }
    }
}
