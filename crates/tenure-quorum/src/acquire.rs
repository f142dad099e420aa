//! `acquire`: asks every member for the claim. The quorum grants a claim that a majority of members has granted.

use std::sync::Arc;

use tenure_backend::{
    AcquireReply, BackendError, Batch, Cause, Claim, Effect, Grant, Instant, Phase, ReleaseRequest,
    RenewReply, RenewRequest, TokenRange,
};

use crate::attempts::{Attempt, Pending};
use crate::backend::Quorum;
use crate::claim_state::ClaimState;
use crate::member::{Member, Release};
use crate::members::Replies;
use crate::votes::{Votes, too_few};

/// A member's reply to `acquire`.
pub(crate) type Vote = Result<AcquireReply, BackendError>;

impl Quorum {
    /// Asks all members at once, and counts their votes until they decide, or the time limit has passed. If a majority has
    /// granted the claim, its members agree on the tokens. Otherwise the quorum withdraws the claim, unless it granted the
    /// claim before.
    pub(crate) async fn acquire_by_majority(
        self: &Arc<Self>,
        claim: Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let _turn = self.attempts.turn(claim.at.id).await;
        let Some(pending) = self.attempts.begin(claim.at.id) else {
            return Ok(AcquireReply::Ended);
        };
        let replies = self.members.ask(
            0..self.members.list.len(),
            |member| member.acquire(claim.clone(), not_after, &pending.state),
            self.release_if_late(claim.clone(), pending.state.clone()),
        );
        let mut votes = Votes::new(self.members.list.len(), self.members.majority());
        self.count(&mut votes, replies, &pending).await;
        self.decide(votes, claim, pending).await
    }

    /// Returns the handler of votes that arrive after the decision. If the claim is no longer wanted, the handler
    /// releases it at each member that granted it late, or may have granted it.
    pub(crate) fn release_if_late(
        self: &Arc<Self>,
        claim: Arc<Claim>,
        state: ClaimState,
    ) -> impl Fn(Arc<Member>, Vote) + Clone + Send + 'static {
        let quorum = self.clone();
        move |member, vote| {
            // The member may have granted the claim if its reply was lost.
            let may_be_granted = match vote {
                Ok(AcquireReply::Granted(_)) => true,
                Ok(_) => false,
                Err(error) => error.effect() == Effect::Unknown,
            };
            if may_be_granted && !state.is_wanted() {
                quorum.release_unless_granted(member, claim.clone());
            }
        }
    }

    /// Releases a claim at one member in the background, unless the quorum has granted the claim in a later poll: then
    /// the member's grant counts, and a release would take the key from the holder.
    fn release_unless_granted(self: &Arc<Self>, member: Arc<Member>, claim: Arc<Claim>) {
        let quorum = self.clone();
        let releasing = async move {
            {
                let _turn = quorum.attempts.turn(claim.at.id).await;
                if let Some(Attempt::Granted { .. }) = quorum.attempts.get(claim.at.id) {
                    return;
                }
                quorum.mark_withdrawn(&claim);
            }
            member.release(withdrawal(&claim)).await;
        };
        self.members.tasks.spawn_on(releasing, &self.members.runtime);
    }

    /// Calls `release_unless_granted` for each of these members, which may have granted the claim.
    fn release_at_others(self: &Arc<Self>, members: impl Iterator<Item = usize>, claim: &Arc<Claim>) {
        for member in members {
            self.release_unless_granted(self.members.list[member].clone(), claim.clone());
        }
    }

    /// Remembers that members release the claim, so that a later poll of it cannot count their grants.
    fn mark_withdrawn(&self, claim: &Claim) {
        let now = self.clock.now();
        self.attempts
            .insert(claim.at.id, Attempt::Withdrawn, now, now + claim.lease);
    }

    /// Reads votes until they decide, or the time limit has passed. Without a majority, declares the claim unwanted, so that
    /// later grants of it are released, unless the quorum granted it before. Votes that arrived before this declaration still
    /// count.
    async fn count(&self, votes: &mut Votes, mut replies: Replies<Vote>, pending: &Pending) {
        while !votes.is_decided() {
            match replies.next().await {
                Some((member, vote)) => votes.add(member, vote),
                None => break,
            }
        }
        if !votes.is_granted() && !pending.is_held() {
            pending.state.give_up();
            for (member, vote) in replies.close() {
                votes.add(member, vote);
            }
        }
    }

    /// Turns the votes into the reply. If the quorum does not grant the claim, releases it at the members that
    /// granted it or may have.
    ///
    /// If the quorum granted the claim before and this poll of it fails, nothing is released. One exception: a
    /// majority granted this poll too, but during the poll a renewal found the claim lost.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        votes: Votes,
        claim: Arc<Claim>,
        pending: Pending,
    ) -> Result<AcquireReply, BackendError> {
        let Pending { state, known } = pending;
        if known.is_some() && !votes.is_granted() {
            return votes.refusal();
        }
        if votes.is_granted() && state.is_wanted() {
            let agreed = self.agree(&votes.granted, &claim, known).await;
            if let Ok(Some(grant)) = agreed {
                let (tokens, until) = (grant.tokens, grant.held_from + grant.lease);
                let attempt = Attempt::Granted { tokens, state };
                self.attempts
                    .insert(claim.at.id, attempt, self.clock.now(), until);
                return Ok(AcquireReply::Granted(grant));
            }
            if known.is_none() {
                state.give_up();
                self.mark_withdrawn(&claim);
                // Other members may have granted the claim while the majority agreed on the tokens.
                let others = (0..self.members.list.len())
                    .filter(|member| votes.granted.iter().all(|(granted, _)| granted != member));
                self.release_at_others(others, &claim);
                self.withdraw(&votes.granted, claim).await;
            }
            return agreed.map(|_| AcquireReply::Ended);
        }
        self.release_at_others(votes.uncertain.iter().copied(), &claim);
        if !votes.granted.is_empty() {
            self.mark_withdrawn(&claim);
            self.withdraw(&votes.granted, claim).await;
        }
        votes.refusal()
    }

    /// Makes the members that granted the claim agree on its tokens, and returns the grant of the quorum. `None` if the
    /// claim has ended at a member that should raise its counter.
    ///
    /// If the quorum granted the claim before, its tokens stay. Otherwise the members agree on the greatest range.
    /// Each member with another range raises its counter to the end of the agreed range, in the same atomic step in
    /// which it finds the claim alive. So at each member of a majority, the counter reached the tokens of this grant
    /// before the claim ended there. A majority that grants a later claim includes one of those members, which
    /// assigns a greater token.
    async fn agree(
        &self,
        granted: &[(usize, Grant)],
        claim: &Arc<Claim>,
        known: Option<Option<TokenRange>>,
    ) -> Result<Option<Grant>, BackendError> {
        let drawn = || granted.iter().filter_map(|(_, grant)| grant.tokens);
        let tokens = known.unwrap_or_else(|| drawn().max_by_key(TokenRange::last));
        let mut held_from = granted.iter().map(|(_, grant)| grant.held_from).min();
        let mut lease = granted.iter().map(|(_, grant)| grant.lease).min();
        let behind = granted.iter().filter(|(_, grant)| grant.tokens != tokens);
        let behind: Vec<usize> = behind.map(|(member, _)| *member).collect();
        let request = RenewRequest {
            only: Phase::Granted,
            raise: tokens,
            ..RenewRequest::of(claim)
        };
        let mut missing = behind.len();
        let mut replies = self.members.ask(
            behind,
            |member| member.store.clone().renew(Batch::from_iter([request.clone()])),
            |_, _| {},
        );
        let mut errors = Vec::new();
        while missing > 0 {
            match replies.next().await.map(|(_, reply)| reply.into_iter().next()) {
                Some(Some(RenewReply::Alive {
                    held_from: from,
                    lease: new,
                })) => {
                    held_from = held_from.min(Some(from));
                    lease = lease.min(Some(new));
                    missing -= 1;
                }
                Some(Some(RenewReply::Gone(_))) => return Ok(None),
                Some(Some(RenewReply::Unknown(error))) => {
                    errors.push(error);
                    break;
                }
                // A member returned an empty batch of replies or panicked, or no reply came in time.
                Some(None) | None => break,
            }
        }
        if missing > 0 {
            let (members, majority) = (self.members.list.len(), self.members.majority());
            return Err(too_few(members, majority, errors, Effect::Unknown));
        }
        match (held_from, lease) {
            (Some(held_from), Some(lease)) => Ok(Some(Grant::new(tokens, held_from, lease))),
            _ => unreachable!("a majority is at least one member"),
        }
    }

    /// Releases a claim at the members that granted it. Waits up to `member_timeout` for their confirmations, so that
    /// the client's next claim does not compete with this one.
    async fn withdraw(&self, granted: &[(usize, Grant)], claim: Arc<Claim>) {
        let withdrawal = withdrawal(&claim);
        let mut replies = self.members.ask(
            granted.iter().map(|(member, _)| *member),
            |member| member.release(withdrawal.clone()),
            |_, _| {},
        );
        while replies.next().await.is_some() {}
    }
}

/// The release of a claim that the quorum did not grant, at a member that may have granted it.
fn withdrawal(claim: &Claim) -> Arc<[Release]> {
    Arc::new([Release {
        request: ReleaseRequest::of(claim, Cause::Withdrawn),
        held: None,
        successor: None,
        longest: claim.lease,
    }])
}
