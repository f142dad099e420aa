//! The reply of `acquire`: the state of the claim, with a grant if the claim holds the key.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Instant, TokenRange};

/// State of a claim in the store, as `acquire` found or made it.
///
/// The cases are complete: the engine must act on each, so a new one is a breaking change.
///
/// # Examples
/// ```
/// use tenure_backend::AcquireReply;
///
/// /// What the engine does next.
/// fn next_step(reply: AcquireReply) -> &'static str {
///     match reply {
///         AcquireReply::Granted(_) => "hold the key, unless the lease has ended on the way",
///         AcquireReply::Waiting { .. } => "poll again after a wake-up or after `poll_after`",
///         AcquireReply::Ended => "make a new claim: this one can never hold the key",
///         AcquireReply::TooLate => "make a new claim: this one was not placed",
///         AcquireReply::Recovering => "poll again later",
///     }
/// }
/// assert_eq!(next_step(AcquireReply::TooLate), "make a new claim: this one was not placed");
/// ```
#[derive(Clone, Debug)]
pub enum AcquireReply {
    /// The claim holds the key.
    Granted(Grant),
    /// The claim does not hold the key. A `Fifo` claim is in the queue. An `Unfair` one leaves nothing in the store,
    /// unless the store queues unfair claims too.
    Waiting {
        /// Number of queued claims before this one; `None` if this one is not queued or the store cannot count.
        ahead: Option<u32>,
        /// Time to the next poll if no wake-up comes first. At most slightly longer than what is left of the lease of
        /// the holder, or of the claim ahead in the queue: if its client has died, no release wakes this claim.
        poll_after: Duration,
    },
    /// The claim was released, was evicted or has expired, and can never hold the key. The store did nothing.
    Ended,
    /// The request arrived after its `not_after`. The store did nothing.
    TooLate,
    /// The store has lost its data, and grants nothing until all earlier leases have ended. This call changed nothing.
    Recovering,
}

/// The tokens and the lease of a granted claim.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::{Clock, Grant, SystemClock};
///
/// // The clock is read before the request is sent, so a slow reply shortens the lease and never lengthens it.
/// let held_from = SystemClock.now();
/// let grant = Grant::new(None, held_from, Duration::from_secs(30));
/// let answered = held_from + Duration::from_secs(4);
/// assert_eq!(grant.held_from + grant.lease - answered, Duration::from_secs(26));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing tokens reserved for this claim; `None` if the store has no tokens.
    pub tokens: Option<TokenRange>,
    /// Start of the lease on the client's clock: the moment before the request was sent, so not later than the
    /// moment at which the store starts to count the lease (B3).
    ///
    /// A store that ties claims to a session or shared lease sets the time of the last confirmed keep-alive. A quorum
    /// of stores sets the earliest `held_from` in its majority.
    pub held_from: Instant,
    /// The moment before the request was sent that found the claim granted: `held_from`, or later in a store with shared
    /// leases. Local hand-overs within [`HANDOVER_WINDOW`](crate::HANDOVER_WINDOW) of it are safe.
    pub confirmed_from: Instant,
    /// Length of the lease from `held_from` on, after rounding to the store's limits.
    pub lease: Duration,
    /// Proof of the grant, for functions of the backend that write only while the claim holds the key.
    pub evidence: Option<Evidence>,
}

impl Grant {
    /// Creates a grant without evidence.
    pub fn new(tokens: Option<TokenRange>, held_from: Instant, lease: Duration) -> Self {
        Grant {
            tokens,
            held_from,
            confirmed_from: held_from,
            lease,
            evidence: None,
        }
    }
}

/// Proof of a grant: a value whose type only the backend knows.
///
/// # Examples
/// ```
/// use tenure_backend::Evidence;
///
/// #[derive(Debug, PartialEq)]
/// struct Revision(i64);
///
/// let evidence = Evidence::new(Revision(7));
/// assert_eq!(evidence.get::<Revision>(), Some(&Revision(7)));
/// assert_eq!(evidence.get::<i64>(), None, "another backend asks for its own type");
/// ```
#[derive(Clone)]
pub struct Evidence(Arc<dyn Any + Send + Sync>);

impl Evidence {
    /// Wraps a value of the backend.
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Evidence(Arc::new(value))
    }

    /// Returns the value if it is of the type `T`.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Evidence(..)")
    }
}
