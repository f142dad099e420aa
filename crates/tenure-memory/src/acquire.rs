//! `acquire` for one key: polls a claim that waits or holds, and grants or refuses a new claim or lets it wait. Only
//! a fair claim joins the queue.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, BackendError, Claim, Fairness, Grant, Instant, TURN};

use crate::key_state::{Hold, KeyState, QueueEntry};
use crate::operation::Operation;
use crate::profile::LIMITS;

impl KeyState {
    /// Grants or refuses a new claim, or lets it wait; polls a claim that waits or holds already.
    pub(crate) fn acquire(
        &mut self,
        claim: Arc<Claim>,
        not_after: Instant,
        op: &mut Operation<'_>,
    ) -> Result<AcquireReply, BackendError> {
        if let Some(waiters) = &mut self.waiters {
            waiters.watchers.set_missed_turn(claim.at.id, false);
        }
        self.place_or_poll(claim, not_after, false, op)
    }

    /// As [`acquire`](Self::acquire). If `yields` is true, does not grant a claim that waits or is new, because waiting
    /// claims of other clients go first.
    pub(crate) fn place_or_poll(
        &mut self,
        claim: Arc<Claim>,
        not_after: Instant,
        yields: bool,
        op: &mut Operation<'_>,
    ) -> Result<AcquireReply, BackendError> {
        let now = op.at.now;
        if let Some(hold) = self.hold_mut(claim.at.id) {
            hold.ends = now + LIMITS.lease(hold.claim.lease);
            return Ok(hold.granted_reply(op));
        }
        let position = self.position(claim.at.id);
        if position.is_none()
            && let Some(refusal) = self.refusal(&claim, not_after, op)
        {
            return refusal;
        }
        let ahead = position.unwrap_or_else(|| self.queue().count());
        let is_admitted = self.admits(&claim, ahead, now);
        if is_admitted && !yields {
            if position.is_some() {
                self.waiters_mut().queue.remove(ahead);
                op.freed = true;
            }
            self.cancel_reservation(claim.at.id);
            return Ok(self.grant(claim, op));
        }
        if !yields && !self.is_paused(now) {
            op.freed |= self.cancel_reservation(claim.at.id);
        }
        let yields_for = is_admitted.then_some(TURN);
        Ok(self.wait(claim, position, yields_for, now))
    }

    /// Returns the reply to a claim that may neither wait nor hold: it has ended, comes after `not_after`, or asks
    /// for another kind of lock than the key is used as.
    fn refusal(
        &self,
        claim: &Claim,
        not_after: Instant,
        op: &Operation<'_>,
    ) -> Option<Result<AcquireReply, BackendError>> {
        if op.ended.contains(claim.at.id) {
            return Some(Ok(AcquireReply::Ended));
        }
        if not_after < op.at.client_now {
            return Some(Ok(AcquireReply::TooLate));
        }
        let asked = claim.mode.kind();
        let held = self.kind().filter(|held| *held != asked)?;
        Some(Err(BackendError::mismatch(held, asked)))
    }

    fn grant(&mut self, claim: Arc<Claim>, op: &mut Operation<'_>) -> AcquireReply {
        let now = op.at.now;
        let hold = Hold {
            tokens: op.tokens.draw(now, LIMITS.grants(claim.grants)),
            ends: now + LIMITS.lease(claim.lease),
            claim,
        };
        let reply = hold.granted_reply(op);
        self.holds.push(hold);
        reply
    }

    /// Lets the claim wait. A fair claim keeps its `position` in the queue, or joins the queue at its end. An unfair
    /// one leaves nothing in the store. `yields_for` is the time for which a claim yields that could be granted.
    fn wait(
        &mut self,
        claim: Arc<Claim>,
        position: Option<usize>,
        yields_for: Option<Duration>,
        now: Instant,
    ) -> AcquireReply {
        let before = position.unwrap_or_else(|| self.queue().count());
        let poll_after = self.poll_after(&claim, before, yields_for, now);
        if claim.fairness == Fairness::Unfair {
            let ahead = None;
            return AcquireReply::Waiting { ahead, poll_after };
        }
        let ends = now + LIMITS.lease(claim.lease);
        match position {
            Some(at) => self.waiters_mut().queue[at].ends = ends,
            None => self.waiters_mut().queue.push_back(QueueEntry { claim, ends }),
        }
        let ahead = u32::try_from(before).ok();
        AcquireReply::Waiting { ahead, poll_after }
    }
}

impl Hold {
    fn granted_reply(&self, op: &Operation<'_>) -> AcquireReply {
        let held_from = op.at.client_now;
        let lease = LIMITS.lease(self.claim.lease);
        AcquireReply::Granted(Grant::new(Some(self.tokens), held_from, lease))
    }
}
