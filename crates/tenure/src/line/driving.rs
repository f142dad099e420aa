//! What a line's driver is to do next: whether to ask the store, with which claim, and how soon to look again.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, Fairness};

use super::state::{Line, State};
use crate::error::Error;
use crate::held::Held;
use crate::seek::Pause;

/// How long an heir that was refused lets others go first.
pub(super) const YIELD: Duration = Duration::from_millis(10);

/// How often the store is asked at least about a holder whom nobody renews, while others wait behind it.
const ASK_ABOUT: Duration = Duration::from_secs(10);

/// What the driver is to do.
pub(crate) enum Step {
    /// Nobody waits: the driver's task ends.
    Exit,
    /// Look again at a ring of the bell, or then.
    Rest(Duration),
    /// Ask the store about this holder, who may have been evicted: its lease is not renewed.
    AskAbout(Arc<Held>),
    /// Ask the store with this claim, after letting others go first for so long.
    Ask(Arc<Claim>, Pause),
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
            return self.behind_holders(&mut state, rest);
        }
        let Some(queue) = state.queue.as_ref() else {
            return Step::Exit;
        };
        let now = self.engine.clock.now();
        let pause = match queue.breath_until - now {
            Duration::ZERO => Pause::ForWakeUp(queue.yield_until - now),
            breath => Pause::Blind(breath),
        };
        let claim = self
            .engine
            .claim_for_run(self, &want, Fairness::Unfair, queue.reserve);
        Step::Ask(claim, pause)
    }

    /// What to do while holders of this client are in the way.
    fn behind_holders(&self, state: &mut State, rest: Duration) -> Step {
        let now = self.engine.clock.now();
        let mut until = now + rest;
        for held in &state.holders {
            until = until.min(held.deadline());
            if !held.options.renewed
                && let Some(queue) = &mut state.queue
            {
                let ask_at = queue.asked_at.max(held.confirmed()) + ASK_ABOUT.min(held.lease() / 3);
                if ask_at <= now {
                    queue.asked_at = now;
                    return Step::AskAbout(held.clone());
                }
                until = until.min(ask_at);
            }
        }
        Step::Rest((until - now).max(Duration::from_millis(1)))
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
            queue.take_first_if(|first| first.want.fits(claim, &self.engine))
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
