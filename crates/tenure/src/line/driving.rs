//! What a line's driver is to do next: whether to ask the store, with which claim, and how soon to look again.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, Fairness, Instant};

use super::state::Line;
use crate::error::Error;

/// How long an heir that was refused lets others go first.
pub(super) const YIELD: Duration = Duration::from_millis(10);

/// What the driver is to do.
pub(crate) enum Step {
    /// Nobody waits: the driver's task ends.
    Exit,
    /// Look again at a ring of the bell, or then.
    Rest(Duration),
    /// Ask the store with this claim, after letting others go first for so long.
    Ask(Arc<Claim>, Duration),
}

impl Line {
    /// What the driver is to do next. Offers that were not taken in time go to the next waiter here.
    pub(crate) fn step(self: &Arc<Self>) -> Step {
        self.retract_offers();
        let mut state = self.state.lock();
        let Some(queue) = state.queue.as_mut() else {
            return Step::Exit;
        };
        if queue.is_idle() {
            state.queue = None;
            return Step::Exit;
        }
        let rest = queue.until_next_look(self.engine.settings.offer_window);
        let Some(want) = queue.first().map(|first| first.want.clone()) else {
            return Step::Rest(rest);
        };
        if queue.heir || state.callers > 0 {
            return Step::Rest(rest);
        }
        if !self.admits(&mut state, want.mode) {
            let now = self.engine.clock.now();
            let until = state
                .holders
                .iter()
                .map(|held| held.deadline())
                .min()
                .unwrap_or(now);
            return Step::Rest((until - now).min(rest).max(Duration::from_millis(1)));
        }
        let yield_until = state
            .queue
            .as_ref()
            .map_or(Instant::ORIGIN, |queue| queue.yield_until);
        let polite = yield_until - self.engine.clock.now();
        Step::Ask(self.engine.claim(self, &want, Fairness::Unfair), polite)
    }

    /// Whether the driver is to go on asking with that claim, and how soon to look again.
    pub(crate) fn still_asks(self: &Arc<Self>, claim: &Claim) -> Option<Duration> {
        self.retract_offers();
        let mut state = self.state.lock();
        if !self.admits(&mut state, claim.mode) {
            return None;
        }
        let queue = state.queue.as_mut()?;
        let fits = queue.first()?.want.fits(claim, &self.engine);
        let check = queue.until_next_look(self.engine.settings.offer_window);
        fits.then_some(check)
    }

    /// The store refused for good: the waiter for whom it was asked is told, and the next one asks for itself.
    pub(crate) fn fail_first(self: &Arc<Self>, claim: &Claim, error: Error) {
        let waiter = {
            let mut state = self.state.lock();
            let Some(queue) = state.queue.as_mut() else { return };
            match queue.first() {
                Some(first) if first.want.fits(claim, &self.engine) => queue.take_first(),
                _ => None,
            }
        };
        if let Some(waiter) = waiter {
            waiter.answer(Err(error));
        }
    }

    /// Takes back what was offered and not taken in time. Who missed it is passed over until it is polled.
    fn retract_offers(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        let window = self.engine.settings.offer_window;
        loop {
            let missed = {
                let mut state = self.state.lock();
                let Some(queue) = state.queue.as_mut() else { return };
                queue
                    .offers()
                    .iter()
                    .find_map(|waiter| waiter.retract(now, window))
            };
            let Some(offer) = missed else { return };
            self.leave_behind(&offer.held);
        }
    }
}
