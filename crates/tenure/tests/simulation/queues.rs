//! Derives the order of the store's queues from its replies, to check rule L3: a grant skips no fair claim in the queue.

use std::collections::BTreeMap;

use tenure_backend::{AcquireReply, Claim, ClaimId, ClaimRef, Fairness, Instant, LockKey};

use crate::simulation::Simulation;

/// For each key, the waiting fair claims in the order in which the store queued them, with the ends of their leases.
#[derive(Debug, Default)]
pub(crate) struct Queues(BTreeMap<LockKey, Vec<(ClaimId, Instant)>>);

impl Queues {
    /// Records a reply to an acquire call. Checks the order (L3) and the cooldown (V3) of a grant.
    pub(crate) fn saw(&mut self, sim: &Simulation, claim: &Claim, standing: &AcquireReply) {
        let (id, now) = (claim.at.id, sim.now());
        sim.claims.lock().asked(id, now);
        match standing {
            AcquireReply::Granted(grant) => {
                let queue = self.0.entry(claim.at.key.clone()).or_default();
                let before = queue.iter().take_while(|(other, _)| *other != id);
                if before.into_iter().any(|(_, ends)| *ends > now) && !sim.claims.lock().knows(id) {
                    sim.violated(
                        "L3",
                        "a claim was granted before one that stands before it in the queue",
                    );
                }
                self.left(&claim.at);
                if sim.claims.lock().granted(claim, grant, sim.epoch(), now) {
                    sim.violated("V3", "a claim was granted within 10 ms of an eviction");
                }
            }
            AcquireReply::Waiting { .. } if claim.fairness == Fairness::Fifo => {
                let ends = now + claim.lease;
                if !self.renewed(&claim.at, ends) {
                    self.0.entry(claim.at.key.clone()).or_default().push((id, ends));
                }
            }
            AcquireReply::Ended => self.left(&claim.at),
            _ => {}
        }
    }

    /// Sets the end of a waiting claim's lease. Returns false if the claim does not wait.
    pub(crate) fn renewed(&mut self, claim: &ClaimRef, ends: Instant) -> bool {
        let waiting = self.0.get_mut(&claim.key);
        let place = waiting.and_then(|queue| queue.iter_mut().find(|(id, _)| *id == claim.id));
        place.map(|place| place.1 = ends).is_some()
    }

    pub(crate) fn left(&mut self, claim: &ClaimRef) {
        if let Some(queue) = self.0.get_mut(&claim.key) {
            queue.retain(|(id, _)| *id != claim.id);
        }
    }

    /// Forgets all queues, because the store lost its data.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}
