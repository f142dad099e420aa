//! `release`: releases claims at every member. For a claim that this client held, the reply waits only for a majority
//! and for the votes on a successor, and the other members follow in the background.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Batch, ClaimId, Effect, HolderId, ReleaseReply, ReleaseRequest, ReleaseTarget,
};

use crate::attempts::Pending;
use crate::backend::Quorum;
use crate::claim_state::ClaimState;
use crate::member::Release;
use crate::members::Replies;
use crate::votes::{Votes, too_few};

/// The members' replies to one request of a batch.
#[derive(Default)]
struct Element {
    /// The claim to release and the rest of its lease, if this client held it. The reply then reports the claim as freed
    /// if one member freed it.
    held: Option<(ClaimState, Duration)>,
    /// Number of members that confirmed the release.
    done: usize,
    /// The holders that were freed, each with the number of members that freed it.
    freed: Vec<(HolderId, usize)>,
    others: Option<u32>,
    errors: Vec<BackendError>,
    /// The votes for the successor, if the request names one that has not ended.
    votes: Option<(Votes, Pending)>,
}

/// Returns the claims that a batch releases or names as successors, sorted. Each batch takes its claims' locks
/// (`Turn`) in this order, so two batches cannot wait for each other.
fn claims(batch: &Batch<ReleaseRequest>) -> BTreeSet<ClaimId> {
    let released = batch.iter().filter_map(|request| match &request.target {
        ReleaseTarget::Claim(claim) => Some(claim.id),
        _ => None,
    });
    let successors = batch.iter().filter_map(|request| request.successor.as_ref());
    released
        .chain(successors.map(|successor| successor.claim.at.id))
        .collect()
}

impl Quorum {
    /// Sends a batch of releases to all members, and merges their replies.
    pub(crate) async fn release_by_majority(
        self: &Arc<Self>,
        batch: Batch<ReleaseRequest>,
    ) -> Batch<ReleaseReply> {
        let (members, majority) = (self.members.list.len(), self.members.majority());
        let mut turns = Vec::new();
        for id in claims(&batch) {
            turns.push(self.attempts.turn(id).await);
        }
        let mut elements: Vec<Element> = batch.iter().map(|request| self.element(request)).collect();
        let mut replies = self.ask_to_release(&batch, &elements);
        let is_decided = |element: &Element| element.is_decided(members, majority);
        replies.tally(&mut elements, Element::add, is_decided).await;
        for element in &elements {
            if let Some((votes, pending)) = &element.votes
                && !votes.is_granted()
                && !pending.is_held()
            {
                pending.state.give_up();
            }
        }
        for (member, replies) in replies.close() {
            for (element, reply) in elements.iter_mut().zip(replies) {
                element.add(member, reply);
            }
        }
        let mut answers = Batch::new();
        for (element, request) in elements.into_iter().zip(batch) {
            answers.push(self.conclude(element, request).await);
        }
        answers
    }

    /// Prepares to count the replies to one request. If the request releases a claim that this client held, marks
    /// that claim as unwanted: a grant of it that a member reports later is released there.
    fn element(&self, request: &ReleaseRequest) -> Element {
        let held = match &request.target {
            ReleaseTarget::Claim(claim) => self.attempts.remove(claim.id, self.clock.now()),
            _ => None,
        };
        let successor = request.successor.as_ref();
        let pending = successor.and_then(|successor| self.attempts.begin(successor.claim.at.id));
        let votes = Votes::new(self.members.list.len(), self.members.majority());
        Element {
            held,
            votes: pending.map(|pending| (votes, pending)),
            ..Element::default()
        }
    }

    /// Sends the batch to every member. A successor that was withdrawn has ended: the members are not asked for it.
    fn ask_to_release(
        self: &Arc<Self>,
        batch: &Batch<ReleaseRequest>,
        elements: &[Element],
    ) -> Replies<Batch<ReleaseReply>> {
        let late: Vec<_> = batch
            .iter()
            .zip(elements)
            .map(|(request, element)| {
                let (_, pending) = element.votes.as_ref()?;
                let claim = request.successor.as_ref()?.claim.clone();
                Some(self.release_if_late(claim, pending.state.clone()))
            })
            .collect();
        let longest = self.profile.limits.max_lease;
        let releases = batch.iter().zip(elements);
        let releases: Arc<[Release]> = releases
            .map(|(request, element)| element.release(request, longest))
            .collect();
        self.members.ask(
            0..self.members.list.len(),
            |member| member.release(releases.clone()),
            move |member, replies: Batch<ReleaseReply>| {
                for (late, reply) in late.iter().zip(replies) {
                    let vote = match reply {
                        ReleaseReply::Done { successor, .. } => successor.map(Ok),
                        ReleaseReply::Unknown(error) => Some(Err(error)),
                    };
                    if let (Some(late), Some(vote)) = (late, vote) {
                        late(member.clone(), vote);
                    }
                }
            },
        )
    }

    /// Turns the members' replies to one request into the quorum's reply.
    async fn conclude(self: &Arc<Self>, element: Element, request: ReleaseRequest) -> ReleaseReply {
        let (members, majority) = (self.members.list.len(), self.members.majority());
        let successor = match (element.votes, request.successor) {
            (Some((votes, pending)), Some(successor)) => {
                let decided = self.decide(votes, successor.claim, pending).await;
                // After an error some members may still have the successor, so the client must place another claim.
                Some(decided.unwrap_or(AcquireReply::Ended))
            }
            (None, Some(_)) => Some(AcquireReply::Ended),
            (_, None) => None,
        };
        if element.done < majority {
            return ReleaseReply::Unknown(too_few(members, majority, element.errors, Effect::Unknown));
        }
        let needed = if element.held.is_some() { 1 } else { majority };
        let freed = element.freed.into_iter().filter(|(_, count)| *count >= needed);
        ReleaseReply::Done {
            freed: freed.map(|(id, _)| id).collect(),
            others: element.others,
            successor,
        }
    }
}

impl Element {
    /// The request to send for this element. `longest` is the longest lease.
    fn release(&self, request: &ReleaseRequest, longest: Duration) -> Release {
        let mut request = request.clone();
        let successor = self.votes.as_ref().map(|(_, pending)| pending.state.clone());
        request.successor = request.successor.filter(|_| successor.is_some());
        let (held, longest) = match &self.held {
            Some((state, left)) => (Some(state.clone()), *left),
            None => (None, longest),
        };
        Release {
            request,
            held,
            successor,
            longest,
        }
    }

    fn add(&mut self, member: usize, reply: ReleaseReply) {
        match reply {
            ReleaseReply::Done {
                freed,
                others,
                successor,
            } => {
                self.done += 1;
                for id in freed {
                    match self.freed.iter_mut().find(|(known, _)| *known == id) {
                        Some((_, count)) => *count += 1,
                        None => self.freed.push((id, 1)),
                    }
                }
                self.others = self.others.max(others);
                if let Some((votes, _)) = &mut self.votes {
                    let vote = successor.unwrap_or(AcquireReply::Recovering);
                    votes.add(member, Ok(vote));
                }
            }
            ReleaseReply::Unknown(error) => {
                if let Some((votes, _)) = &mut self.votes {
                    votes.add(member, Err(error.clone()));
                }
                self.errors.push(error);
            }
        }
    }

    /// Returns whether the quorum can reply. The release of a claim that this client held needs the confirmations of a
    /// majority. Otherwise all members must reply, because what an eviction has freed is known only then. The votes for
    /// the successor must be decided too.
    fn is_decided(&self, members: usize, majority: usize) -> bool {
        let needed = if self.held.is_some() { majority } else { members };
        let released = self.done >= needed || self.done + self.errors.len() == members;
        let votes = self.votes.as_ref();
        released && votes.is_none_or(|(votes, _)| votes.is_decided())
    }
}
