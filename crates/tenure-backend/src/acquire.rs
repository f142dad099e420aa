//! What `acquire` answers: where a claim stands, and what a grant is worth.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Instant, TokenRange};

/// Where a claim stands in the store, as `acquire` saw it.
///
/// # Examples
/// ```
/// use tenure_backend::AcquireReply;
///
/// /// What the engine does next.
/// fn next(standing: AcquireReply) -> &'static str {
///     match standing {
///         AcquireReply::Granted(_) => "hold it, if the grant has not arrived dead",
///         AcquireReply::Waiting { .. } => "poll again after a wake-up or `poll_after`",
///         AcquireReply::Ended => "never poll it again: take another claim",
///         AcquireReply::TooLate => "take another claim: this one was not placed",
///         AcquireReply::Recovering => "poll again later",
///     }
/// }
/// assert_eq!(next(AcquireReply::Ended), "never poll it again: take another claim");
/// ```
#[derive(Clone, Debug)]
pub enum AcquireReply {
    /// It holds the key.
    Granted(Grant),
    /// It does not hold the key. A `Fifo` claim is in the queue; of an `Unfair` one nothing is left.
    Waiting {
        /// How many claims must go before this one, where the store can tell.
        ahead: Option<u32>,
        /// When to poll again if no wake-up comes first: no later than the moment at which a dead holder's (or a
        /// dead predecessor's) lease ends.
        poll_after: Duration,
    },
    /// It was released, evicted or has expired, and will never hold the key. The store did nothing.
    Ended,
    /// The request came after its `not_after`. The store did nothing.
    TooLate,
    /// The store has lost its memory and grants nothing until older leases have ended. It did nothing.
    Recovering,
}

/// What the store promised to a claim that it granted.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_backend::{Clock, Grant, SystemClock};
///
/// // Read before the request is sent: a slow reply shortens what is left, and never lengthens it.
/// let held_from = SystemClock.now();
/// let grant = Grant { tokens: None, held_from, lease: Duration::from_secs(30), evidence: None };
/// let answered = held_from + Duration::from_secs(4);
/// assert_eq!(grant.held_from + grant.lease - answered, Duration::from_secs(26));
/// ```
#[derive(Clone, Debug)]
pub struct Grant {
    /// The fencing tokens reserved, where the store has any.
    pub tokens: Option<TokenRange>,
    /// When the request was sent from which the store counts the lease: never later than the store's own count.
    ///
    /// For a session or a shared lease it is the last confirmed keep-alive; for a quorum the oldest of the
    /// majority counted.
    pub held_from: Instant,
    /// How long the store keeps the claim from then on. A store rounds to its own limits and says so here.
    pub lease: Duration,
    /// The backend's own proof of the grant, for its guarded-write helpers.
    pub evidence: Option<Evidence>,
}

/// A value of the backend's own type that came with a grant.
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
/// assert_eq!(evidence.get::<i64>(), None, "another backend's helper does not take it");
/// ```
#[derive(Clone)]
pub struct Evidence(Arc<dyn Any + Send + Sync>);

impl Evidence {
    /// Wraps the backend's value.
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Evidence(Arc::new(value))
    }

    /// The value, if it is of that type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Evidence(..)")
    }
}
