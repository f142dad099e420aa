//! The order of the store's queues as its answers show it, for L3. Attempts and beliefs are the checker's.

use std::collections::BTreeMap;

use tenure_backend::{AcquireReply, Claim, ClaimId, ClaimRef, Fairness, Instant, LockKey};

use crate::world::World;

/// Fair claims that wait, in the order of their placing, each with the end of its lease.
#[derive(Debug, Default)]
pub(crate) struct Queues(BTreeMap<LockKey, Vec<(ClaimId, Instant)>>);

impl Queues {
    /// The store has answered so about the claim.
    pub(crate) fn saw(&mut self, world: &World, claim: &Claim, standing: &AcquireReply) {
        let (id, now) = (claim.at.id, world.now());
        world.claims.lock().asked(id, now);
        match standing {
            AcquireReply::Granted(grant) => {
                let queue = self.0.entry(claim.at.key.clone()).or_default();
                let before = queue.iter().take_while(|(other, _)| *other != id);
                if before.into_iter().any(|(_, ends)| *ends > now) && !world.claims.lock().knows(id) {
                    world.violated(
                        "L3",
                        "a claim was granted before one that stands before it in the queue",
                    );
                }
                self.left(&claim.at);
                if world.claims.lock().granted(claim, grant, world.epoch(), now) {
                    world.violated("V3", "a claim was granted within 10 ms of an eviction");
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

    /// The claim's lease was restarted; false if it does not wait.
    pub(crate) fn renewed(&mut self, claim: &ClaimRef, ends: Instant) -> bool {
        let waiting = self.0.get_mut(&claim.key);
        let place = waiting.and_then(|queue| queue.iter_mut().find(|(id, _)| *id == claim.id));
        place.map(|place| place.1 = ends).is_some()
    }

    /// The claim waits no more.
    pub(crate) fn left(&mut self, claim: &ClaimRef) {
        if let Some(queue) = self.0.get_mut(&claim.key) {
            queue.retain(|(id, _)| *id != claim.id);
        }
    }

    /// The store has lost its memory.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}
