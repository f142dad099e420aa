//! `acquire` for one key: polls a claim that waits or holds, and grants or refuses a new claim or lets it wait. Only
//! a fair claim joins the queue.

use std::sync::Arc;

use tenure_backend::{AcquireReply, BackendError, Claim, Fairness, Grant, Instant};

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
        if self.admits(&claim, ahead, now) {
            if position.is_some() {
                self.waiters_mut().queue.remove(ahead);
                op.freed = true;
            }
            self.cancel_reservation(claim.at.id);
            return Ok(self.grant(claim, op));
        }
        if !self.is_paused(now) {
            op.freed |= self.cancel_reservation(claim.at.id);
        }
        Ok(self.wait(claim, position, now))
    }

    /// Returns the reply to a claim that may neither wait nor hold: it has ended, comes after `not_after`, or asks
    /// for another kind of lock than the key is used as.
    pub(crate) fn refusal(
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
    /// one leaves nothing in the store.
    pub(crate) fn wait(&mut self, claim: Arc<Claim>, position: Option<usize>, now: Instant) -> AcquireReply {
        let before = position.unwrap_or_else(|| self.queue().count());
        let poll_after = self.poll_after(&claim, before, now);
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
