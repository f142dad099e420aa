//! How callers come to a line, wait in it, and become holders.

use std::sync::Arc;

use tenure_backend::{Claim, Grant, Mode};

use super::state::{Line, State};
use crate::held::Held;
use crate::waiter::Waiter;
use crate::want::Want;

/// What a caller is told when it comes to the line.
pub(crate) enum Enter {
    /// Ask the store yourself, and say how it went.
    Ask,
    /// Somebody of this client holds it: a try fails without I/O.
    Busy,
    /// Wait for an offer.
    Wait(Arc<Waiter>),
    /// The client was closed.
    Closed,
}

impl Line {
    /// An unfair caller comes. Told to ask, it counts as asking until it says how that went, unless it only tries.
    pub(crate) fn enter(self: &Arc<Self>, want: &Want, tries: bool) -> Enter {
        let mut state = self.state.lock();
        if state.closed {
            return Enter::Closed;
        }
        let held = !self.admits(&mut state, want.mode);
        if tries {
            // A try is no waiter: it asks unless the answer is known.
            return if held { Enter::Busy } else { Enter::Ask };
        }
        let shared = matches!(want.mode, Mode::Read | Mode::Permits { .. });
        let idle = state.queue.as_ref().is_none_or(|queue| queue.is_idle());
        if !held && idle && (state.callers == 0 || shared) {
            state.callers += 1;
            return Enter::Ask;
        }
        let waiter = Waiter::waiting(self, want);
        waiter.set_place(self.engine.places.last());
        let queue = self.queue(&mut state);
        queue.put(waiter.clone());
        if !held {
            queue.bell.notify_one();
        }
        Enter::Wait(waiter)
    }

    /// Whether those who wait stand behind a call of which nothing is known, and behind nobody who holds.
    pub(crate) fn is_unanswered(&self, mode: Mode) -> bool {
        let mut state = self.state.lock();
        state.callers > 0 && self.admits(&mut state, mode)
    }

    /// A caller's own call was refused: it waits, before all who came after it.
    pub(crate) fn wait_first(self: &Arc<Self>, waiter: Arc<Waiter>) {
        let mut state = self.state.lock();
        state.callers -= 1;
        if state.closed {
            drop(state);
            return waiter.answer(Err(self.engine.watchdog.closed()));
        }
        // A future that has gone has looked for itself in the queue already.
        if !waiter.is_gone() {
            waiter.set_place(self.engine.places.first());
            let queue = self.queue(&mut state);
            // It was refused, so somebody else holds the key, and may want it again.
            queue.others |= self.engine.backend.profile().tells_others;
            queue.put(waiter);
        }
        Self::ring(&state);
    }

    /// A caller's own call ended without a grant, and it does not wait.
    pub(crate) fn stop_asking(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.callers -= 1;
        Self::ring(&state);
    }

    /// A waiter that was passed over is being polled again: it stands where it stood.
    pub(crate) fn revive(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return waiter.answer(Err(self.engine.watchdog.closed()));
        }
        let queue = self.queue(&mut state);
        queue.remove(waiter);
        queue.put(waiter.clone());
        queue.bell.notify_one();
    }

    /// A waiter's future has gone, and left nothing.
    pub(crate) fn forget_waiter(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        if let Some(queue) = &mut state.queue {
            queue.remove(waiter);
            queue.bell.notify_one();
        }
    }

    /// Takes a grant for `want`; `None` if it arrived dead, and the claim is to be withdrawn.
    pub(crate) fn hold(self: &Arc<Self>, claim: &Arc<Claim>, grant: Grant, want: &Want) -> Option<Arc<Held>> {
        let mut state = self.state.lock();
        let held = self.hold_in(&mut state, claim, grant, want)?;
        // Whoever asks for the waiters need not: the key is this client's.
        Self::ring(&state);
        Some(held)
    }

    /// As [`hold`](Self::hold), for a caller that counts as asking: it does so no more, unless it got `None`.
    pub(crate) fn hold_asked(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        grant: Grant,
        want: &Want,
    ) -> Option<Arc<Held>> {
        let mut state = self.state.lock();
        let held = self.hold_in(&mut state, claim, grant, want)?;
        state.callers -= 1;
        Self::ring(&state);
        Some(held)
    }

    pub(super) fn hold_in(
        self: &Arc<Self>,
        state: &mut State,
        claim: &Arc<Claim>,
        grant: Grant,
        want: &Want,
    ) -> Option<Arc<Held>> {
        if state.closed {
            return None;
        }
        let now = self.engine.clock.now();
        let held = Held::new(self, claim.clone(), grant, want.options.clone(), now)?;
        state.holders.push(held.clone());
        if let Some(queue) = &mut state.queue {
            // While others wait elsewhere, a run gives each local waiter one turn and no more.
            queue.run_left = if queue.others { queue.len() } else { u32::MAX };
        }
        self.engine.watchdog.track(&held, now);
        Some(held)
    }
}
