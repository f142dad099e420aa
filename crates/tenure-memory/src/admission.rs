//! Decides whether a claim is granted, when a refused one polls again, and which waiters are woken.

use std::time::Duration;

use tenure_backend::{Claim, ClientId, Fairness, Instant, Mode, TURN};

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
    /// lease. `yields_for` is the time for which a claim yields that could be granted.
    pub(crate) fn poll_after(
        &self,
        claim: &Claim,
        ahead: usize,
        yields_for: Option<Duration>,
        now: Instant,
    ) -> Duration {
        let holds = self.holds.iter().map(|hold| hold.ends);
        let queue = self.queue().take(ahead).map(|entry| entry.ends);
        let reserved = self.reservations_against(claim, now).map(|one| one.until);
        let soonest = holds.chain(queue).chain(reserved).chain(self.cooldown(now)).min();
        let wait = yields_for.unwrap_or(soonest.map_or(Duration::ZERO, |instant| instant - now));
        let longest = match claim.fairness {
            Fairness::Fifo => LIMITS.lease(claim.lease) / 3,
            Fairness::Unfair => Duration::MAX,
        };
        wait.min(longest).max(MIN_POLL)
    }

    pub(crate) fn waiting_of_others(&self, client: Option<ClientId>) -> u32 {
        let is_other = |claim: &Claim| Some(claim.at.id.client()) != client;
        let queued = self.queue().filter(|entry| is_other(&entry.claim)).count();
        let watching = self
            .unfair_watchers()
            .filter(|watcher| is_other(&watcher.claim) && !watcher.missed_turn);
        u32::try_from(queued + watching.count()).unwrap_or(u32::MAX)
    }

    /// Wakes the claims that go next, if this operation freed the key or a place in its queue. If claims queue, wakes
    /// the first of them if the holders admit it. Without a queue, reserves the key for the unfair claims that go next,
    /// and wakes those that can be granted together, in the order in which they started to watch.
    ///
    /// One more unfair claim is woken as a spare. The `poll_after` in the reply to its poll is the end of the first
    /// claim's lease, or of the reservation. So if the woken claims never poll, the spare finds the key free then, and
    /// does not sleep until an earlier `poll_after` has passed.
    pub(crate) fn wake_next(&mut self, op: &mut Operation<'_>) {
        if !op.freed || self.waiters.is_none() {
            return;
        }
        if let Some(head) = self.queue().next() {
            let (id, mode) = (head.claim.at.id, head.claim.mode);
            let is_next = mode.admits(self.holds.iter().map(|hold| hold.claim.mode));
            if is_next && let Some(waiters) = &self.waiters {
                waiters.watchers.notify(id, op.signals);
            }
            let spare = self.unfair_watchers().min_by_key(|watcher| watcher.missed_turn);
            op.signals.extend(spare.map(|spare| spare.signal.clone()));
            return;
        }
        let turns = self.next_turns(op);
        if !turns.is_empty() {
            self.waiters_mut().reservations = turns;
        }
        self.wake_unfair(op);
    }

    /// The reservations for the claims that have watched longest and can hold the key together. The claims of the
    /// releasing client get none, nor do claims that let a turn pass.
    fn next_turns(&self, op: &Operation<'_>) -> Vec<Reservation> {
        let now = op.at.now;
        let until = self.cooldown(now).unwrap_or(now) + TURN;
        let mut turns: Vec<Reservation> = Vec::new();
        for watcher in self.unfair_watchers().filter(|watcher| !watcher.missed_turn) {
            let Claim { at, mode, .. } = &*watcher.claim;
            let held = self.holds.iter().map(|hold| hold.claim.mode);
            if Some(at.id.client()) != op.releaser
                && mode.admits(held.chain(turns.iter().map(|one| one.mode)))
            {
                let (id, mode) = (at.id, *mode);
                turns.push(Reservation { id, mode, until });
            }
        }
        turns
    }

    /// Wakes the unfair claims that can be granted together: those with a turn, and those that the turns of others
    /// admit. Also wakes one spare. A claim that let its turn pass is woken only as a spare, and only if it can be granted:
    /// its client got a wake-up for that turn.
    fn wake_unfair(&self, op: &mut Operation<'_>) {
        let now = op.at.now;
        let mut woken: Vec<Mode> = Vec::new();
        let (mut spare, mut last_spare) = (None, None);
        for watcher in self.unfair_watchers() {
            let claim = &*watcher.claim;
            let reserved = self.reservations_against(claim, now).map(|one| one.mode);
            let held = self.holds.iter().map(|hold| hold.claim.mode);
            let is_admitted = claim
                .mode
                .admits(held.chain(reserved).chain(woken.iter().copied()));
            match (is_admitted, watcher.missed_turn) {
                (true, false) => {
                    op.signals.push(watcher.signal.clone());
                    woken.push(claim.mode);
                }
                (false, false) => spare = spare.or(Some(&watcher.signal)),
                (true, true) => last_spare = last_spare.or(Some(&watcher.signal)),
                (false, true) => {}
            }
        }
        let spare = spare.filter(|_| !woken.is_empty());
        op.signals.extend(spare.or(last_spare).cloned());
    }

    /// Wakes all watchers: they may sleep until the end of a lease that has become shorter.
    pub(crate) fn wake_all(&self, op: &mut Operation<'_>) {
        let watchers = self.waiters.iter().flat_map(|waiters| waiters.watchers.iter());
        op.signals.extend(watchers.map(|watcher| watcher.signal.clone()));
    }

    /// The watchers of unfair claims that wait. Fair claims wait in the queue.
    fn unfair_watchers(&self) -> impl Iterator<Item = &Watcher> {
        let watchers = self.waiters.iter().flat_map(|waiters| waiters.watchers.iter());
        watchers.filter(|watcher| is_unfair_waiter(watcher, &self.holds))
    }
}

/// Returns whether the watcher's claim is unfair and waits.
fn is_unfair_waiter(watcher: &Watcher, holds: &[Hold]) -> bool {
    let id = watcher.claim.at.id;
    watcher.claim.fairness == Fairness::Unfair && !holds.iter().any(|hold| hold.claim.at.id == id)
}
