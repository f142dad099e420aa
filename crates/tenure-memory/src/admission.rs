//! Decides whether a claim is granted, when a refused one polls again, and which waiters are woken.

use std::time::Duration;

use tenure_backend::{Claim, ClientId, Fairness, Instant, TURN};

use crate::key_state::{Hold, KeyState, Reservation};
use crate::operation::Operation;
use crate::profile::LIMITS;
use crate::watchers::Watcher;

const MIN_POLL: Duration = Duration::from_millis(1);

impl KeyState {
    /// Returns whether the claim may be granted. `ahead` is the number of claims before this claim in the queue.
    ///
    /// For an unfair claim `ahead` is the length of the queue, so no unfair claim overtakes a queue.
    pub(crate) fn admits(&self, claim: &Claim, ahead: usize, now: Instant) -> bool {
        let reserved = self.reservations_against(claim, now).map(|one| one.mode);
        let held = self.holds.iter().map(|hold| hold.claim.mode);
        ahead == 0 && !self.is_paused(now) && claim.mode.admits(held.chain(reserved))
    }

    pub(crate) fn is_paused(&self, now: Instant) -> bool {
        self.cooldown(now).is_some()
    }

    fn cooldown(&self, now: Instant) -> Option<Instant> {
        let cooldown = self.waiters.as_ref().and_then(|waiters| waiters.cooldown);
        cooldown.filter(|cooldown| now < *cooldown)
    }

    /// Reservations of the key for other clients, which delay the grant of this claim. A fair claim ignores
    /// reservations and obeys the queue.
    fn reservations_against(&self, claim: &Claim, now: Instant) -> impl Iterator<Item = &Reservation> {
        let (client, fairness) = (claim.at.id.client(), claim.fairness);
        let reservations = self.waiters.iter().flat_map(|waiters| &waiters.reservations);
        reservations.filter(move |reservation| {
            fairness == Fairness::Unfair && reservation.id.client() != client && now < reservation.until
        })
    }

    /// Time until the reply to a refused claim could change without a wake-up: the first end of a holder's lease, of
    /// the lease of a claim ahead, of a reservation, or of the cooldown. Fair claims poll within a third of their
    /// lease.
    pub(crate) fn poll_after(&self, claim: &Claim, ahead: usize, now: Instant) -> Duration {
        let holds = self.holds.iter().map(|hold| hold.ends);
        let queue = self.queue().take(ahead).map(|entry| entry.ends);
        let reserved = self.reservations_against(claim, now).map(|one| one.until);
        let soonest = holds.chain(queue).chain(reserved).chain(self.cooldown(now)).min();
        let wait = soonest.map_or(Duration::ZERO, |instant| instant - now);
        let longest = match claim.fairness {
            Fairness::Fifo => LIMITS.lease(claim.lease) / 3,
            Fairness::Unfair => Duration::MAX,
        };
        wait.min(longest).max(MIN_POLL)
    }

    pub(crate) fn waiting_of_others(&self, client: Option<ClientId>) -> u32 {
        let is_other = |claim: &Claim| Some(claim.at.id.client()) != client;
        let queued = self.queue().filter(|entry| is_other(&entry.claim)).count();
        let watchers = self.waiters.iter().flat_map(|waiters| waiters.watchers.iter());
        let watching =
            watchers.filter(|watcher| is_other(&watcher.claim) && is_unfair_waiter(watcher, &self.holds));
        u32::try_from(queued + watching.count()).unwrap_or(u32::MAX)
    }

    /// Wakes the claims that go next, if this operation freed the key or a place in its queue. If claims queue, wakes
    /// the first of them if the holders admit it. Without a queue, wakes the unfair claims that can be granted
    /// together, in the order in which they started to watch, and reserves the key for them.
    ///
    /// One more unfair claim is woken as a spare. The `poll_after` in the reply to its poll is the end of the first
    /// claim's lease, or of the reservation. So if the woken claims never poll, the spare finds the key free then, and
    /// does not sleep until an earlier `poll_after` has passed.
    pub(crate) fn wake_next(&mut self, op: &mut Operation<'_>) {
        let (Some(waiters), true) = (&mut self.waiters, op.freed) else {
            return;
        };
        let held = || self.holds.iter().map(|hold| hold.claim.mode);
        if let Some(head) = waiters.queue.front() {
            if head.claim.mode.admits(held()) {
                waiters.watchers.notify(head.claim.at.id, op.signals);
            }
            let spare = waiters
                .watchers
                .iter()
                .find(|one| is_unfair_waiter(one, &self.holds));
            op.signals.extend(spare.map(|spare| spare.signal.clone()));
            return;
        }
        let now = op.at.now;
        let until = waiters.cooldown.map_or(now, |cooldown| cooldown.max(now)) + TURN;
        waiters.reservations.clear();
        let mut spare = None;
        for watcher in waiters
            .watchers
            .iter()
            .filter(|one| is_unfair_waiter(one, &self.holds))
        {
            let Claim { at, mode, .. } = &*watcher.claim;
            if mode.admits(held().chain(waiters.reservations.iter().map(|one| one.mode))) {
                op.signals.push(watcher.signal.clone());
                let (id, mode) = (at.id, *mode);
                waiters.reservations.push(Reservation { id, mode, until });
            } else {
                spare = spare.or(Some(&watcher.signal));
            }
        }
        if !waiters.reservations.is_empty() {
            op.signals.extend(spare.cloned());
        }
    }
}

/// Returns whether the watcher's claim is unfair and waits. Fair claims wait in the queue.
fn is_unfair_waiter(watcher: &Watcher, holds: &[Hold]) -> bool {
    let id = watcher.claim.at.id;
    watcher.claim.fairness == Fairness::Unfair && !holds.iter().any(|hold| hold.claim.at.id == id)
}
