//! Lingering: the client keeps an unlocked claim for up to 10 ms, so that its next caller need not ask the store.

use std::sync::Arc;

use smallvec::SmallVec;
use tenure_backend::{HANDOVER_WINDOW, Instant};

use super::effects::{Effects, ReleaseOrder};
use super::holders::Exit;
use super::state::{Event, Holder, KeyQueue};
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;

/// What a new caller gets of a lingering claim (unlocked, and kept for the next local caller).
pub(super) enum Lingering {
    None,
    /// The caller gets the claim, with the reserved token of this index.
    Taken(Arc<Hold>, u32),
    /// The claim cannot serve the caller. Release it before the caller asks the store.
    Released(ReleaseOrder),
}

impl Holder {
    pub(super) fn lingers(&self) -> bool {
        self.lingers_until.is_some()
    }
}

impl KeyQueue {
    /// Keeps an unlocked claim for the next local caller. Returns until when; `None` if it must be released now.
    pub(super) fn linger(&mut self, now: Instant, at: usize) -> Option<Instant> {
        let is_contended = self.contention.as_ref().is_some_and(|contention| {
            contention.policy.others_wait() || contention.waiters.first().is_some()
        });
        let holder = &mut self.holders[at];
        let hold = &holder.hold;
        let until = (now + holder.options.linger(hold.mode())?).min(hold.granted + HANDOVER_WINDOW);
        let may_linger = self.rules.local_handover
            && !is_contended
            && holder.lingers_until.is_none()
            && !hold.has_departed()
            && !hold.may_be_downgraded()
            && now < until.min(hold.deadline())
            && holder.grants < hold.run;
        holder.lingers_until = may_linger.then_some(until);
        holder.lingers_until
    }

    /// Gives a lingering claim to a new caller, or releases it if it cannot serve the caller.
    pub(super) fn take_lingering(
        &mut self,
        now: Instant,
        request: &LockRequest,
        effects: &mut Effects,
    ) -> Lingering {
        let at = self.holders.iter().position(Holder::lingers);
        let Some(holder) = at.and_then(|at| self.holders.get_mut(at)) else {
            return Lingering::None;
        };
        let hold = holder.hold.clone();
        let serves = holder.serves(request)
            && holder.lingers_until.is_some_and(|until| now < until)
            && now < hold.deadline()
            && !hold.has_departed();
        if serves {
            holder.lingers_until = None;
            let nth = holder.grants;
            holder.grants += 1;
            effects.handed_over += 1;
            return Lingering::Taken(hold, nth);
        }
        match self.holder_done(now, &hold, effects) {
            Exit::Release(order) => Lingering::Released(order),
            Exit::HandedOver | Exit::Lingers | Exit::Shared | Exit::Gone => Lingering::None,
        }
    }

    /// Number of tokens that a claim reserves if its caller asks the store itself: 1; with the `linger` option, twice
    /// the number of grants of the claim before.
    pub(super) fn own_reserve(&self, request: &LockRequest) -> u32 {
        request
            .options
            .linger(request.mode)
            .map_or(1, |_| self.last_run.saturating_mul(2).max(2))
    }
}

/// Queue event: the linger timer has fired. Claims whose time to linger is over are released.
pub(crate) struct LingerOver;

impl Event for LingerOver {
    /// Time at which the timer must fire next, if any claim lingers.
    type Reply = Option<Instant>;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Option<Instant> {
        let is_over = |holder: &&Holder| holder.lingers_until.is_some_and(|until| until <= now);
        let over = queue.holders.iter().filter(is_over);
        let over: SmallVec<[Arc<Hold>; 1]> = over.map(|holder| holder.hold.clone()).collect();
        for hold in over {
            queue.give_up(now, &hold, effects);
        }
        let lingering = queue.holders.iter().filter_map(|holder| holder.lingers_until);
        let next = lingering.min();
        queue.has_linger_timer = next.is_some();
        next
    }
}
