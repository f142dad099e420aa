//! Lingering: a claim that no local caller waits for stays in the client for a few milliseconds.

use std::sync::Arc;

use smallvec::SmallVec;
use tenure_backend::{HANDOVER_WINDOW, Instant};

use super::effects::{Effects, ReleaseOrder};
use super::holders::Exit;
use super::state::{Event, Holder, KeyQueue};
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;

/// What an arriving caller finds of a lingering claim.
pub(super) enum Lingering {
    None,
    /// The caller gets the claim, with that grant of its run.
    Taken(Arc<Hold>, u32),
    /// The claim does not fit the caller's request, and must be released before the caller asks.
    Released(ReleaseOrder),
}

impl Holder {
    pub(super) fn lingers(&self) -> bool {
        self.lingers_until.is_some()
    }
}

impl KeyQueue {
    /// Keeps a claim that no local caller waits for. Returns the end of that time, or `None` if it must be released.
    pub(super) fn linger(&mut self, now: Instant, at: usize) -> Option<Instant> {
        let is_contended = self.contention.as_ref().is_some_and(|contention| {
            contention.policy.others_wait() || contention.waiters.first().is_some()
        });
        let holder = &mut self.holders[at];
        let hold = &holder.hold;
        let until = (now + holder.request.linger()?).min(hold.granted + HANDOVER_WINDOW);
        let may_linger = self.rules.local_handover
            && !is_contended
            && holder.lingers_until.is_none()
            && !hold.has_departed()
            && now < until.min(hold.deadline())
            && holder.grants < hold.run;
        holder.lingers_until = may_linger.then_some(until);
        holder.lingers_until
    }

    /// Gives a lingering claim to a caller, or releases it if it does not fit the caller's request.
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
        let serves = holder.request == *request
            && holder.lingers_until.is_some_and(|until| now < until)
            && now < hold.deadline()
            && !hold.has_departed();
        if serves {
            holder.lingers_until = None;
            let nth = holder.grants;
            holder.grants += 1;
            effects.handed_over = true;
            return Lingering::Taken(hold, nth);
        }
        match self.holder_done(now, &hold, effects) {
            Exit::Release(order) => Lingering::Released(order),
            Exit::HandedOver | Exit::Lingers | Exit::Gone => Lingering::None,
        }
    }

    /// Number of grants that a caller's own claim reserves.
    pub(super) fn own_reserve(&self, request: &LockRequest) -> u32 {
        request
            .linger()
            .map_or(1, |_| self.last_run.saturating_mul(2).max(2))
    }

    /// Releases claims whose linger time has passed. Returns the time at which the next one ends.
    pub(super) fn end_lingering(&mut self, now: Instant, effects: &mut Effects) -> Option<Instant> {
        let is_over = |holder: &&Holder| holder.lingers_until.is_some_and(|until| until <= now);
        let over = self.holders.iter().filter(is_over);
        let over: SmallVec<[Arc<Hold>; 1]> = over.map(|holder| holder.hold.clone()).collect();
        for hold in over {
            self.give_up(now, &hold, effects);
        }
        let next = self
            .holders
            .iter()
            .filter_map(|holder| holder.lingers_until)
            .min();
        self.has_linger_timer = next.is_some();
        next
    }
}

/// The timer for lingering claims has fired.
pub(crate) struct LingerOver;

impl Event for LingerOver {
    /// The end of the next claim's linger time.
    type Reply = Option<Instant>;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Option<Instant> {
        queue.end_lingering(now, effects)
    }
}
