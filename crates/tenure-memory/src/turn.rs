//! Whose turn it is at one key: who is admitted, who is woken, and how long the others sleep.

use std::time::Duration;

use tenure_backend::{Claim, ClaimId, ClientId, Fairness, Instant, Mode, TURN, WakeSignal};

use crate::profile::LIMITS;
use crate::room::{Hold, Room};
use crate::visit::Visit;
use crate::watch::Watcher;

/// How soon a claim is asked to poll again, at the soonest.
const MIN_POLL: Duration = Duration::from_millis(1);

/// An unfair claim that was woken: until it asks, other clients' unfair claims find it as good as granted. So
/// whoever has watched longest goes next, not whoever happens to be quickest.
#[derive(Debug)]
pub(crate) struct Kept {
    id: ClaimId,
    mode: Mode,
    until: Instant,
}

impl Room {
    /// Whether a claim with so many queue members before it may be granted.
    ///
    /// Nobody overtakes in the queue, and an unfair claim has the whole queue before it.
    pub(crate) fn admits(&self, claim: &Claim, before: usize, now: Instant) -> bool {
        let kept = self.kept_from(claim, now).map(|kept| kept.mode);
        let held = self.holds.iter().map(|hold| hold.claim.mode);
        before == 0 && !self.is_barred(now) && claim.mode.admits(held.chain(kept))
    }

    pub(crate) fn is_barred(&self, now: Instant) -> bool {
        self.cooldown(now).is_some()
    }

    fn cooldown(&self, now: Instant) -> Option<Instant> {
        let cooldown = self.crowd.as_ref().and_then(|crowd| crowd.cooldown);
        cooldown.filter(|cooldown| now < *cooldown)
    }

    /// What is kept for others that the claim must respect. A fair claim respects its queue only.
    fn kept_from(&self, claim: &Claim, now: Instant) -> impl Iterator<Item = &Kept> {
        let (client, fairness) = (claim.at.id.client(), claim.fairness);
        let kept = self.crowd.iter().flat_map(|crowd| &crowd.kept);
        kept.filter(move |kept| {
            fairness == Fairness::Unfair && kept.id.client() != client && now < kept.until
        })
    }

    /// When the answer to a claim that was refused could change without a wake-up: when a lease of those
    /// before it ends, or the cooldown, or what is kept for others.
    pub(crate) fn poll_after(&self, claim: &Claim, before: usize, now: Instant) -> Duration {
        let holds = self.holds.iter().map(|hold| hold.ends);
        let queue = self.queue().take(before).map(|place| place.ends);
        let kept = self.kept_from(claim, now).map(|kept| kept.until);
        let soonest = holds.chain(queue).chain(kept).chain(self.cooldown(now)).min();
        let wait = soonest.map_or(Duration::ZERO, |moment| moment - now);
        let longest = match claim.fairness {
            Fairness::Fifo => LIMITS.lease(claim.lease) / 3,
            Fairness::Unfair => Duration::MAX,
        };
        wait.min(longest).max(MIN_POLL)
    }

    /// How many claims wait that are not this client's.
    pub(crate) fn waiting_besides(&self, client: Option<ClientId>) -> u32 {
        let elsewhere = |claim: &Claim| Some(claim.at.id.client()) != client;
        let queued = self.queue().filter(|place| elsewhere(&place.claim)).count();
        let watchers = self.crowd.iter().flat_map(|crowd| crowd.watchers.iter());
        let watching = watchers.filter(|watcher| elsewhere(&watcher.claim) && waits(watcher, &self.holds));
        u32::try_from(queued + watching.count()).unwrap_or(u32::MAX)
    }

    /// Wakes who may go, if somebody left in this visit: the head of the queue, or else the unfair claims
    /// that may be granted together, the longest watching first. For these the key is kept.
    ///
    /// One more unfair claim is woken, as a spare: should those before it not ask, it learns that it may ask
    /// again in a moment, and nobody sleeps beside a free key.
    pub(crate) fn call_the_next(&mut self, visit: &mut Visit<'_>) {
        let (Some(crowd), true) = (&mut self.crowd, visit.freed) else {
            return;
        };
        let held = || self.holds.iter().map(|hold| hold.claim.mode);
        if let Some(head) = crowd.queue.front() {
            if head.claim.mode.admits(held()) {
                crowd.watchers.notify(head.claim.at.id, visit.signals);
            }
            return;
        }
        let now = visit.at.now;
        let until = crowd.cooldown.map_or(now, |cooldown| cooldown.max(now)) + TURN;
        crowd.kept.clear();
        let mut spare = None;
        for watcher in crowd.watchers.iter().filter(|one| waits(one, &self.holds)) {
            let Claim { at, mode, .. } = &*watcher.claim;
            if mode.admits(held().chain(crowd.kept.iter().map(|kept| kept.mode))) {
                visit.signals.push(watcher.signal.clone());
                let (id, mode) = (at.id, *mode);
                crowd.kept.push(Kept { id, mode, until });
            } else {
                spare = spare.or(Some(&watcher.signal));
            }
        }
        if !crowd.kept.is_empty() {
            visit.signals.extend(spare.cloned());
        }
    }

    /// Begins to wake whoever watches the claim: at once, if it may go already or has ended.
    pub(crate) fn watch(&mut self, watcher: Watcher, visit: &mut Visit<'_>) {
        let id = watcher.claim.at.id;
        if visit.ended.contains(id) {
            visit.signals.push(watcher.signal);
            return;
        }
        let before = self.place_of(id).unwrap_or_else(|| self.queue().count());
        let holds = self.holds.iter().any(|hold| hold.claim.at.id == id);
        if !holds && self.admits(&watcher.claim, before, visit.at.now) {
            visit.signals.push(watcher.signal.clone());
        }
        self.crowd().watchers.add(watcher);
    }

    /// Ends a watch. If the key was kept for it, others may go.
    pub(crate) fn unwatch(&mut self, signal: &WakeSignal, visit: &mut Visit<'_>) {
        let Some(crowd) = &mut self.crowd else { return };
        if let Some(watcher) = crowd.watchers.remove(signal)
            && !crowd.watchers.any_of(watcher.claim.at.id)
        {
            visit.freed |= self.stop_keeping(watcher.claim.at.id);
        }
    }

    /// Counts a claim that has ended as waiting no more, and wakes whoever watches it if they must be told.
    pub(crate) fn retire(&mut self, id: ClaimId, told: bool, visit: &mut Visit<'_>) {
        if let Some(crowd) = &mut self.crowd {
            if told {
                crowd.watchers.notify(id, visit.signals);
            }
            crowd.watchers.retire(id);
        }
        visit.freed |= self.stop_keeping(id);
    }

    /// Keeps the key for that claim no longer: it asks, or waits no more. Whether it was kept.
    pub(crate) fn stop_keeping(&mut self, id: ClaimId) -> bool {
        let Some(crowd) = &mut self.crowd else {
            return false;
        };
        let before = crowd.kept.len();
        crowd.kept.retain(|kept| kept.id != id);
        crowd.kept.len() < before
    }
}

/// Whether the watcher is an unfair claim that waits: one that is fair waits in the queue or not at all.
fn waits(watcher: &Watcher, holds: &[Hold]) -> bool {
    let id = watcher.claim.at.id;
    watcher.claim.fairness == Fairness::Unfair && !holds.iter().any(|hold| hold.claim.at.id == id)
}
