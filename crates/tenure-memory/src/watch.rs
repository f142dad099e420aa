//! Wake-ups: signals that are rung after the store is unlocked.

use std::sync::Arc;

use tenure_backend::{Claim, ClaimId, WakeSignal};

use crate::visit::Bells;

/// A claim that somebody watches, by a signal of its own.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) claim: Arc<Claim>,
    pub(crate) signal: WakeSignal,
}

/// Who watches one key, the longest watching first.
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

    pub(crate) fn any_of(&self, id: ClaimId) -> bool {
        self.0.iter().any(|watcher| watcher.claim.at.id == id)
    }

    /// Wakes whoever watches that claim.
    pub(crate) fn notify(&self, id: ClaimId, signals: &mut Bells) {
        let of_claim = self.0.iter().filter(|watcher| watcher.claim.at.id == id);
        signals.extend(of_claim.map(|watcher| watcher.signal.clone()));
    }

    /// Forgets whoever watches a claim that has ended: they wait for nothing.
    pub(crate) fn retire(&mut self, id: ClaimId) {
        self.0.retain(|watcher| watcher.claim.at.id != id);
    }
}
