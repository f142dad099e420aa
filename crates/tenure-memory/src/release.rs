//! `release` for one key: unlocks, withdrawals and evictions, and the grant of a successor.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Batch, Cause, Claim, ClaimId, Fairness, HolderId, Instant, Loss, ReleaseReply,
    ReleaseRequest, ReleaseTarget, TURN,
};

use crate::key_state::KeyState;
use crate::operation::Operation;

impl KeyState {
    /// Ends the target's claims, and then grants, queues or refuses the successor.
    pub(crate) fn release(&mut self, request: ReleaseRequest, op: &mut Operation<'_>) -> ReleaseReply {
        let ReleaseRequest {
            target,
            cause,
            successor,
            cooldown,
        } = request;
        let mut freed = Batch::new();
        let mut client = None;
        match target {
            ReleaseTarget::Claim(claim) => {
                client = Some(claim.id.client());
                freed.extend(self.end_claim(claim.id, &cause, cooldown, op));
            }
            // Only Tenure's own clients use this store, so it has no foreign holder.
            ReleaseTarget::Foreign { .. } => {}
            ReleaseTarget::All(_) => {
                while let Some(hold) = self.holds.last() {
                    let id = hold.claim.at.id;
                    freed.extend(self.end_claim(id, &cause, cooldown, op));
                }
            }
        }
        let others = self.waiting_of_others(client);
        ReleaseReply::Done {
            freed,
            others: Some(others),
            successor: successor
                .map(|successor| self.place_successor(successor.claim, successor.not_after, others > 0, op)),
        }
    }

    /// Treats a successor as [`acquire`](Self::acquire) does. If `yields` is true, does not grant it, because waiting
    /// claims of other clients go first. A successor that holds the key already keeps it.
    fn place_successor(
        &mut self,
        claim: Arc<Claim>,
        not_after: Instant,
        yields: bool,
        op: &mut Operation<'_>,
    ) -> AcquireReply {
        let id = claim.at.id;
        let poll_soon = AcquireReply::Waiting {
            ahead: None,
            poll_after: TURN,
        };
        if !yields || self.hold_mut(id).is_some() {
            // If the key is used as another kind of lock, the successor is not placed. Its own `acquire` then returns
            // the error.
            return self.acquire(claim, not_after, op).unwrap_or(poll_soon);
        }
        let position = self.position(id);
        match position.is_none().then(|| self.refusal(&claim, not_after, op)) {
            Some(Some(refusal)) => refusal.unwrap_or(poll_soon),
            _ if claim.fairness == Fairness::Unfair => poll_soon,
            _ => self.wait(claim, position, op.at.now),
        }
    }

    /// Ends a claim, even one whose `acquire` has not come yet. Returns its ID if it held the key or was in the queue.
    fn end_claim(
        &mut self,
        id: ClaimId,
        cause: &Cause,
        cooldown: Duration,
        op: &mut Operation<'_>,
    ) -> Option<HolderId> {
        let ends = self.remove_claim(id, cooldown, op.at.now);
        op.record_end(id);
        let evicted = match cause {
            Cause::Evicted { by } => Some(by.clone()),
            _ => None,
        };
        self.stop_waiting(id, evicted.is_some(), op);
        let ends = ends?;
        op.freed = true;
        if let Some(by) = evicted {
            op.losses.record(id, Loss::Evicted { by }, ends);
        }
        Some(HolderId::Claim(id))
    }

    /// Removes a claim from the holders or the queue, and returns the end of its lease. The removal of a holder starts
    /// the `cooldown`, unless it is zero.
    fn remove_claim(&mut self, id: ClaimId, cooldown: Duration, now: Instant) -> Option<Instant> {
        if let Some(at) = self.holds.iter().position(|hold| hold.claim.at.id == id) {
            if !cooldown.is_zero() {
                self.waiters_mut().cooldown = Some(now + cooldown);
            }
            return Some(self.holds.remove(at).ends);
        }
        let at = self.position(id)?;
        self.waiters_mut().queue.remove(at).map(|entry| entry.ends)
    }
}
