//! `watch` for one key: starts and ends subscriptions to wake-ups.

use tenure_backend::WakeSignal;

use crate::key_state::KeyState;
use crate::operation::Operation;
use crate::watchers::Watcher;

impl KeyState {
    /// Adds a watcher of a claim. Wakes it at once if the claim has ended or can be granted already.
    pub(crate) fn watch(&mut self, watcher: Watcher, op: &mut Operation<'_>) {
        let id = watcher.claim.at.id;
        if op.ended.contains(id) {
            op.signals.push(watcher.signal);
            return;
        }
        let ahead = self.position(id).unwrap_or_else(|| self.queue().count());
        let is_held = self.holds.iter().any(|hold| hold.claim.at.id == id);
        if !is_held && self.admits(&watcher.claim, ahead, op.at.now) {
            op.signals.push(watcher.signal.clone());
        }
        self.waiters_mut().watchers.add(watcher);
    }

    /// Removes a watcher. If it was the last one of its claim, the claim's reservation of the key ends, so other
    /// claims may be granted.
    pub(crate) fn unwatch(&mut self, signal: &WakeSignal, op: &mut Operation<'_>) {
        let Some(waiters) = &mut self.waiters else {
            return;
        };
        if let Some(watcher) = waiters.watchers.remove(signal)
            && !waiters.watchers.has_claim(watcher.claim.at.id)
        {
            op.freed |= self.cancel_reservation(watcher.claim.at.id);
        }
    }
}
