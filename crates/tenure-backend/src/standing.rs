//! What `acquire` answers: where a claim stands, and what a grant is worth.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Instant, TokenRun};

/// Where a claim stands in the store, as `acquire` saw it.
#[derive(Clone, Debug)]
pub enum Standing {
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
    /// The request came after its `place_by`. The store did nothing.
    TooLate,
    /// The store has lost its memory and grants nothing until older leases have ended. It did nothing.
    Recovering,
}

/// What the store promised to a claim that it granted.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The fencing tokens reserved, where the store has any.
    pub tokens: Option<TokenRun>,
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
