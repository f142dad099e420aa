//! The watchers of one key. Their signals are notified after the store is unlocked.

use std::sync::Arc;

use tenure_backend::{Claim, ClaimId, WakeSignal};

use crate::operation::Signals;

/// A claim whose client asked for wake-ups, and the signal that wakes it.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) claim: Arc<Claim>,
    pub(crate) signal: WakeSignal,
    /// Whether the claim let its turn pass and was not polled since. Its client may be dead.
    pub(crate) missed_turn: bool,
}

impl Watcher {
    pub(crate) fn new(claim: Arc<Claim>, signal: WakeSignal) -> Self {
        Watcher {
            claim,
            signal,
            missed_turn: false,
        }
    }
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

    /// Adds a watcher. Another watch of a claim that missed its turn does not prove that its client polls.
    pub(crate) fn add(&mut self, mut watcher: Watcher) {
        watcher.missed_turn = self.of_claim(watcher.claim.at.id).any(|other| other.missed_turn);
        self.0.push(watcher);
    }

    /// Records whether the claim has missed its turn.
    pub(crate) fn set_missed_turn(&mut self, id: ClaimId, missed: bool) {
        let of_claim = self.0.iter_mut().filter(|watcher| watcher.claim.at.id == id);
        of_claim.for_each(|watcher| watcher.missed_turn = missed);
    }

    pub(crate) fn remove(&mut self, signal: &WakeSignal) -> Option<Watcher> {
        let at = self.0.iter().position(|watcher| watcher.signal.is(signal))?;
        Some(self.0.remove(at))
    }

    pub(crate) fn has_claim(&self, id: ClaimId) -> bool {
        self.of_claim(id).next().is_some()
    }

    /// Adds the signals of the claim's watchers, to be notified once the store is unlocked.
    pub(crate) fn notify(&self, id: ClaimId, signals: &mut Signals) {
        signals.extend(self.of_claim(id).map(|watcher| watcher.signal.clone()));
    }

    fn of_claim(&self, id: ClaimId) -> impl Iterator<Item = &Watcher> {
        self.0.iter().filter(move |watcher| watcher.claim.at.id == id)
    }

    pub(crate) fn remove_claim(&mut self, id: ClaimId) {
        self.0.retain(|watcher| watcher.claim.at.id != id);
    }
}
