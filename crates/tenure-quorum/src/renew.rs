//! `renew`: a claim is alive as long as a majority of the members confirms it.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    BackendError, Batch, Cause, Effect, Fault, Instant, Loss, Phase, ReleaseRequest, ReleaseTarget,
    RenewReply, RenewRequest,
};

use crate::backend::Quorum;
use crate::cleanup;
use crate::votes::too_few;

/// The members' replies to one request of a batch.
#[derive(Default)]
struct Element {
    /// The members that confirmed the claim, with the start and the length of the lease.
    alive: Vec<(usize, Instant, Duration)>,
    /// Number of members at which the claim is gone.
    gone: usize,
    /// The first reason other than `Missing` that a member gave for the loss; `Missing` if there is no other.
    loss: Option<Loss>,
    errors: Vec<BackendError>,
}

impl Quorum {
    /// Sends a batch of renewals to all members, and merges their replies.
    pub(crate) async fn renew_by_majority(self: &Arc<Self>, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        let (members, majority) = (self.members.list.len(), self.members.majority());
        let mut elements: Vec<Element> = batch.iter().map(|_| Element::default()).collect();
        let mut replies = self.members.ask_all(|member| member.renew(batch.clone()));
        while !elements
            .iter()
            .all(|element| element.is_decided(members, majority))
        {
            let Some((member, replies)) = replies.next().await else {
                break;
            };
            for (element, reply) in elements.iter_mut().zip(replies) {
                element.add(member, reply);
            }
        }
        let elements = elements.into_iter().zip(batch);
        elements
            .map(|(element, request)| self.conclude_renewal(element, request))
            .collect()
    }

    fn conclude_renewal(&self, element: Element, request: RenewRequest) -> RenewReply {
        let (members, majority) = (self.members.list.len(), self.members.majority());
        let id = request.claim.id;
        if element.alive.len() >= majority {
            let held_from = element.alive.iter().map(|(_, from, _)| *from).min();
            let lease = element.alive.iter().map(|(_, _, lease)| *lease).min();
            if let (Some(held_from), Some(lease)) = (held_from, lease) {
                self.attempts.renewed(id, held_from + lease, request.raise);
                return RenewReply::Alive { held_from, lease };
            }
        }
        if members - element.gone < majority {
            if request.only == Phase::Granted {
                self.attempts.remove(id);
            }
            // The claim is lost. Without a release, members that still have it would keep it until the end of its
            // lease.
            for (member, ..) in element.alive {
                let release = ReleaseRequest {
                    target: ReleaseTarget::Claim(request.claim.clone()),
                    cause: Cause::Withdrawn,
                    successor: None,
                    cooldown: Duration::ZERO,
                };
                let member = self.members.list[member].clone();
                self.members
                    .runtime
                    .spawn(cleanup::repeat_release(member, release, request.lease));
            }
            return RenewReply::Gone(element.loss.unwrap_or(Loss::Missing));
        }
        // The members refuse an invalid request, such as the downgrade of a mutex, for the same reason.
        let mut errors = element.errors.iter();
        if let Some(invalid) = errors.find(|error| error.fault() == Fault::Invalid) {
            return RenewReply::Unknown(invalid.clone());
        }
        RenewReply::Unknown(too_few(members, majority, element.errors, Effect::Unknown))
    }
}

impl Element {
    fn add(&mut self, member: usize, reply: RenewReply) {
        match reply {
            RenewReply::Alive { held_from, lease } => self.alive.push((member, held_from, lease)),
            RenewReply::Gone(loss) => {
                self.gone += 1;
                if self.loss.as_ref().is_none_or(|known| *known == Loss::Missing) {
                    self.loss = Some(loss);
                }
            }
            RenewReply::Unknown(error) => self.errors.push(error),
        }
    }

    /// Returns whether the quorum can reply: a majority has confirmed the claim, can no longer confirm it, or can no
    /// longer reply without an error.
    fn is_decided(&self, members: usize, majority: usize) -> bool {
        self.alive.len() >= majority
            || members - self.gone < majority
            || members - self.errors.len() < majority
    }
}
