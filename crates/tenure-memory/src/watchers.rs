//! The watchers of one key. Their signals are notified after the store is unlocked.

use std::sync::Arc;

use tenure_backend::{Claim, ClaimId, WakeSignal};

use crate::operation::Signals;

/// A claim whose client asked for wake-ups, and the signal that wakes it.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) claim: Arc<Claim>,
    pub(crate) signal: WakeSignal,
}

/// The watchers of one key, in the order in which they started to watch.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<Watcher>);

impl Watchers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Watcher> {
        self.0.iter()
    }

    pub(crate) fn add(&mut self, watcher: Watcher) {
        self.0.push(watcher);
    }

    pub(crate) fn remove(&mut self, signal: &WakeSignal) -> Option<Watcher> {
        let at = self.0.iter().position(|watcher| watcher.signal.is(signal))?;
        Some(self.0.remove(at))
    }

    pub(crate) fn has_claim(&self, id: ClaimId) -> bool {
        self.0.iter().any(|watcher| watcher.claim.at.id == id)
    }

    /// Adds the signals of the claim's watchers, to be notified once the store is unlocked.
    pub(crate) fn notify(&self, id: ClaimId, signals: &mut Signals) {
        let of_claim = self.0.iter().filter(|watcher| watcher.claim.at.id == id);
        signals.extend(of_claim.map(|watcher| watcher.signal.clone()));
    }

    pub(crate) fn remove_claim(&mut self, id: ClaimId) {
        self.0.retain(|watcher| watcher.claim.at.id != id);
    }
}
