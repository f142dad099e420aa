//! `renew`: a claim is alive as long as a majority of the members confirms it.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{BackendError, Batch, Effect, Fault, Instant, Loss, Phase, RenewReply, RenewRequest};

use crate::backend::Quorum;
use crate::votes::{errors_decide, too_few};

/// The members' replies to one request of a batch.
#[derive(Default)]
struct Element {
    /// The start and the length of the lease at each member that confirmed the claim.
    alive: Vec<(Instant, Duration)>,
    /// Number of members at which the claim is gone.
    gone: usize,
    /// The first reason other than `Missing` that a member gave for the loss; `Missing` if members gave no other;
    /// `None` if no member lacks the claim.
    loss: Option<Loss>,
    errors: Vec<BackendError>,
}

impl Quorum {
    /// Sends a batch of renewals to all members, and merges their replies.
    pub(crate) async fn renew_by_majority(self: &Arc<Self>, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        let (members, majority) = (self.members.list.len(), self.members.majority());
        let mut elements: Vec<Element> = batch.iter().map(|_| Element::default()).collect();
        let mut replies = self
            .members
            .ask_all(|member| member.store.clone().renew(batch.clone()));
        let is_decided = |element: &Element| element.is_decided(members, majority);
        let add = |element: &mut Element, _, reply| element.add(reply);
        replies.tally(&mut elements, add, is_decided).await;
        let elements = elements.into_iter().zip(batch);
        elements
            .map(|(element, request)| self.conclude_renewal(element, request))
            .collect()
    }

    fn conclude_renewal(&self, element: Element, request: RenewRequest) -> RenewReply {
        let (members, majority) = (self.members.list.len(), self.members.majority());
        let id = request.claim.id;
        if element.alive.len() >= majority {
            let held_from = element.alive.iter().map(|(from, _)| *from).min();
            let lease = element.alive.iter().map(|(_, lease)| *lease).min();
            if let (Some(held_from), Some(lease)) = (held_from, lease) {
                self.attempts.renewed(id, held_from + lease, request.raise);
                return RenewReply::Alive { held_from, lease };
            }
        }
        if members - element.gone < majority {
            // The quorum does not release the claim at the members that still have it, because its holder may
            // be paused before it reads this reply, and believe in the claim until its local deadline.
            if request.only == Phase::Granted {
                self.attempts.remove(id, self.clock.now());
            }
            return RenewReply::Gone(element.loss.unwrap_or(Loss::Missing));
        }
        // All members refuse an invalid request, such as the downgrade of a mutex, for the same reason. So one error
        // is the reply.
        let mut errors = element.errors.iter();
        if let Some(invalid) = errors.find(|error| error.fault() == Fault::Invalid) {
            return RenewReply::Unknown(invalid.clone());
        }
        RenewReply::Unknown(too_few(members, majority, element.errors, Effect::Unknown))
    }
}

impl Element {
    fn add(&mut self, reply: RenewReply) {
        match reply {
            RenewReply::Alive { held_from, lease } => self.alive.push((held_from, lease)),
            RenewReply::Gone(loss) => {
                self.gone += 1;
                if self.loss.as_ref().is_none_or(|known| *known == Loss::Missing) {
                    self.loss = Some(loss);
                }
            }
            RenewReply::Unknown(error) => self.errors.push(error),
        }
    }

    /// Returns whether the quorum can reply: a majority has confirmed the claim, or too few members are left for one,
    /// because the others lack the claim, or because their requests failed and no further reply can change the fault.
    fn is_decided(&self, members: usize, majority: usize) -> bool {
        self.alive.len() >= majority
            || members - self.gone < majority
            || errors_decide(members, majority, self.alive.len() + self.gone, &self.errors)
    }
}
