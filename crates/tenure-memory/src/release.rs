//! `release` for one key: unlocks, withdrawals and evictions, and the grant of a successor.

use std::time::Duration;

use tenure_backend::{
    AcquireReply, Batch, Cause, ClaimId, HolderId, Instant, Loss, ReleaseReply, ReleaseRequest,
    ReleaseTarget, Successor, TURN,
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
        op.releaser = client;
        ReleaseReply::Done {
            freed,
            others: Some(others),
            successor: successor.map(|Successor { claim, not_after }| {
                let placed = self.place_or_poll(claim, not_after, others > 0, op);
                // If the key is used as another kind of lock, the successor is not placed. Its own `acquire` then
                // returns the error.
                placed.unwrap_or(AcquireReply::Waiting {
                    ahead: None,
                    poll_after: TURN,
                })
            }),
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
