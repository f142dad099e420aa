//! Lingering: a claim that no local caller waits for stays in the client for a few milliseconds.

use std::sync::Arc;

use smallvec::SmallVec;
use tenure_backend::{Instant, PASS_WINDOW};

use super::state::{Effects, KeyQueue};
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;

impl KeyQueue {
    /// Keeps a claim that no local caller waits for. Returns until when, or `None` if it must be released.
    pub(super) fn linger(&mut self, now: Instant, at: usize) -> Option<Instant> {
        let is_contended = self.contention.as_ref().is_some_and(|contention| {
            contention.policy.others_wait() || contention.waiters.first().is_some()
        });
        let holder = &mut self.holders[at];
        let hold = &holder.hold;
        let until = (now + holder.request.linger()?).min(hold.granted() + PASS_WINDOW);
        let may_linger = self.rules.local_handover
            && !is_contended
            && holder.lingers_until.is_none()
            && !hold.has_departed()
            && now < until.min(hold.deadline())
            && holder.grants < hold.run();
        holder.lingers_until = may_linger.then_some(until);
        holder.lingers_until
    }

    /// Gives a lingering claim to a caller. A claim that does not serve the caller is released.
    pub(super) fn take_lingering(
        &mut self,
        now: Instant,
        request: &LockRequest,
        effects: &mut Effects,
    ) -> Option<(Arc<Hold>, u32)> {
        let at = self
            .holders
            .iter()
            .position(|holder| holder.lingers_until.is_some())?;
        let holder = &mut self.holders[at];
        let hold = holder.hold.clone();
        let serves = holder.request.fits(request)
            && holder.lingers_until.is_some_and(|until| now < until)
            && now < hold.deadline()
            && !hold.has_departed();
        if !serves {
            self.give_up(now, &hold, effects);
            return None;
        }
        holder.lingers_until = None;
        let nth = holder.grants;
        holder.grants += 1;
        effects.handed_over = true;
        Some((hold, nth))
    }

    /// Number of grants that a caller's own claim reserves.
    pub(super) fn own_reserve(&self, request: &LockRequest) -> u32 {
        request
            .linger()
            .map_or(1, |_| self.last_run.saturating_mul(2).max(2))
    }

    /// Releases claims that have lingered for their time. Returns when the next one ends.
    pub(super) fn end_lingering(&mut self, now: Instant, effects: &mut Effects) -> Option<Instant> {
        let mut next = None;
        let over: SmallVec<[Arc<Hold>; 1]> = self
            .holders
            .iter()
            .filter(|holder| match holder.lingers_until {
                Some(until) if now < until => {
                    next = Some(until);
                    false
                }
                Some(_) => true,
                None => false,
            })
            .map(|holder| holder.hold.clone())
            .collect();
        for hold in over {
            self.give_up(now, &hold, effects);
        }
        self.has_linger_timer = next.is_some();
        next
    }
}
