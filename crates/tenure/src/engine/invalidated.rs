//! What the renewer and the follower of invalidations tell each other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure_backend::Instant;
use tokio::sync::Notify;

/// Whether claims are held, and when the store last hinted that claims may be gone.
#[derive(Default)]
pub(crate) struct Invalidated {
    /// Whether the client is about to subscribe, or has done so.
    begun: AtomicBool,
    begin: Notify,
    /// The time of the last invalidation, of any key.
    last: AtomicU64,
}

impl Invalidated {
    /// Notes that the client holds a claim.
    pub(crate) fn claim_held(&self) {
        // The load alone is cheap, and nearly always enough.
        if !self.begun.load(Ordering::Relaxed) && !self.begun.swap(true, Ordering::Relaxed) {
            self.begin.notify_one();
        }
    }

    /// Waits until the client holds a claim.
    pub(crate) async fn until_a_claim_is_held(&self) {
        self.begin.notified().await;
    }

    /// Notes that no claim is held any more: the next one ends the next wait.
    pub(crate) fn no_claim_held(&self) {
        self.begun.store(false, Ordering::Relaxed);
    }

    /// Notes an invalidation.
    pub(crate) fn note(&self, now: Instant) {
        self.last.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    /// Returns whether an invalidation may concern a claim that was requested at this time.
    pub(crate) fn may_concern(&self, requested: Instant) -> bool {
        requested.as_nanos() <= self.last.load(Ordering::Relaxed)
    }
}
