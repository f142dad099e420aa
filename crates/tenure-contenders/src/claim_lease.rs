//! The lease of one claim, as its client counts it.

use std::time::Duration;

use tenure_backend::Instant;

/// The lease of one claim. What keeps the claim's record on the server lasts longer, because of other claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimLease {
    /// Start of the lease: when the request was sent that has restarted it, or an earlier time.
    pub held_from: Instant,
    /// End of the lease.
    pub ends: Instant,
}

impl ClaimLease {
    /// A lease that starts at `held_from`.
    pub fn new(held_from: Instant, length: Duration) -> Self {
        ClaimLease {
            held_from,
            ends: held_from + length,
        }
    }

    /// Restarts the lease, unless a request that was sent later has restarted it: replies may arrive in another order than their
    /// requests were sent. Returns the lease as it is then.
    pub fn restart(&mut self, restarted: ClaimLease) -> ClaimLease {
        if restarted.held_from >= self.held_from {
            *self = restarted;
        }
        *self
    }

    /// The length of the lease.
    pub fn length(&self) -> Duration {
        self.ends - self.held_from
    }
}
