//! One key: its holders, its queue, and what happens when a claim comes or goes. Nothing here reads a clock or
//! wakes a waiter: a [`Visit`] brings the time and takes the signals along.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tenure_backend::{
    AcquireReply, BackendError, Batch, Cause, Claim, ClaimId, Fairness, Grant, HolderId, Instant, Kind, Loss,
    Phase, ReleaseReply, ReleaseRequest, ReleaseTarget, RenewReply, RenewRequest, TURN, TokenRange,
};

use crate::profile::LIMITS;
use crate::turn::Kept;
use crate::visit::Visit;
use crate::watch::Watchers;

/// One key with whoever has to do with it. A claim that is neither in `holds` nor in the queue is absent.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) holds: SmallVec<[Hold; 1]>,
    /// What most keys never have, out of the way, so that a key that is merely held takes little.
    pub(crate) crowd: Option<Box<Crowd>>,
}

/// A claim that was granted.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: Arc<Claim>,
    pub(crate) tokens: TokenRange,
    pub(crate) ends: Instant,
}

/// A claim that waits in the queue, on a lease of its own.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) claim: Arc<Claim>,
    pub(crate) ends: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// Fair claims in the order in which they were placed.
    pub(crate) queue: VecDeque<Place>,
    /// Everybody who wants to be woken. An unfair claim that waits is nowhere else.
    pub(crate) watchers: Watchers,
    /// For whom the key is kept.
    pub(crate) kept: Vec<Kept>,
    /// Until when nobody is admitted, after an eviction.
    pub(crate) cooldown: Option<Instant>,
}

impl Room {
    /// Places the claim, or polls it if it is there.
    pub(crate) fn acquire(
        &mut self,
        claim: Arc<Claim>,
        not_after: Instant,
        visit: &mut Visit<'_>,
    ) -> Result<AcquireReply, BackendError> {
        let now = visit.at.now;
        if let Some(hold) = self.hold_mut(claim.at.id) {
            hold.ends = now + LIMITS.lease(hold.claim.lease);
            return Ok(hold.standing(visit));
        }
        let place = self.place_of(claim.at.id);
        if place.is_none()
            && let Some(refusal) = self.refusal(&claim, not_after, visit)
        {
            return refusal;
        }
        let before = place.unwrap_or_else(|| self.queue().count());
        if self.admits(&claim, before, now) {
            if place.is_some() {
                self.crowd().queue.remove(before);
                visit.freed = true;
            }
            self.stop_keeping(claim.at.id);
            return Ok(self.grant(claim, visit));
        }
        if !self.is_barred(now) {
            visit.freed |= self.stop_keeping(claim.at.id);
        }
        Ok(self.wait(claim, place, now))
    }

    /// Keeps a claim alive that is alive in the phase that was asked for.
    pub(crate) fn renew(&mut self, renewal: &RenewRequest, visit: &mut Visit<'_>) -> RenewReply {
        let RenewRequest {
            claim: who,
            only,
            raise,
            ..
        } = renewal;
        let now = visit.at.now;
        let asked = now + LIMITS.lease(renewal.lease);
        let ends;
        if let Some(hold) = self.hold_mut(who.id) {
            if *only == Phase::Waiting {
                return RenewReply::Gone(Loss::Missing);
            }
            ends = renewal.end(hold.ends, asked);
            hold.ends = ends;
            hold.tokens = raise.unwrap_or(hold.tokens);
        } else if let Some(at) = self.place_of(who.id) {
            if *only == Phase::Granted {
                return RenewReply::Gone(Loss::Missing);
            }
            let waiter = &mut self.crowd().queue[at];
            ends = renewal.end(waiter.ends, asked);
            waiter.ends = ends;
        } else {
            return RenewReply::Gone(visit.fates.loss(who.id, now));
        }
        if let Some(run) = raise {
            visit.tokens.raise(*run);
        }
        RenewReply::Alive {
            held_from: visit.at.asked,
            lease: ends - now,
        }
    }

    /// Makes whoever is named absent, and then places the successor.
    pub(crate) fn release(&mut self, departure: ReleaseRequest, visit: &mut Visit<'_>) -> ReleaseReply {
        let ReleaseRequest {
            target: who,
            cause,
            successor,
            cooldown,
        } = departure;
        let mut freed = Batch::new();
        let mut client = None;
        match who {
            ReleaseTarget::Claim(claim) => {
                client = Some(claim.id.client());
                freed.extend(self.depart(claim.id, &cause, cooldown, visit));
            }
            // Nobody here is another kind of client's.
            ReleaseTarget::Foreign { .. } => {}
            ReleaseTarget::All(_) => {
                while let Some(hold) = self.holds.last() {
                    let id = hold.claim.at.id;
                    freed.extend(self.depart(id, &cause, cooldown, visit));
                }
            }
        }
        let others = self.waiting_besides(client);
        ReleaseReply::Done {
            freed,
            others: Some(others),
            successor: successor
                .map(|successor| self.inherit(successor.claim, successor.not_after, others > 0, visit)),
        }
    }

    /// Places a successor as [`acquire`](Self::acquire) does, but does not grant it if it yields to others.
    fn inherit(
        &mut self,
        claim: Arc<Claim>,
        not_after: Instant,
        yields: bool,
        visit: &mut Visit<'_>,
    ) -> AcquireReply {
        let id = claim.at.id;
        let polls_soon = AcquireReply::Waiting {
            ahead: None,
            poll_after: TURN,
        };
        if !yields || self.hold_mut(id).is_some() {
            // A successor of another kind is told so when it asks for itself: nothing of it is here.
            return self.acquire(claim, not_after, visit).unwrap_or(polls_soon);
        }
        let place = self.place_of(id);
        match place.is_none().then(|| self.refusal(&claim, not_after, visit)) {
            Some(Some(refusal)) => refusal.unwrap_or(polls_soon),
            _ if claim.fairness == Fairness::Unfair => polls_soon,
            _ => self.wait(claim, place, visit.at.now),
        }
    }

    /// Why a claim that is absent cannot be placed: it has ended, it comes too late, or the key is of another
    /// kind.
    fn refusal(
        &self,
        claim: &Claim,
        not_after: Instant,
        visit: &Visit<'_>,
    ) -> Option<Result<AcquireReply, BackendError>> {
        if visit.ended.contains(claim.at.id) {
            return Some(Ok(AcquireReply::Ended));
        }
        if not_after < visit.at.asked {
            return Some(Ok(AcquireReply::TooLate));
        }
        let asked = claim.mode.kind();
        let held = self.kind().filter(|held| *held != asked)?;
        Some(Err(BackendError::mismatch(held, asked)))
    }

    fn grant(&mut self, claim: Arc<Claim>, visit: &mut Visit<'_>) -> AcquireReply {
        let now = visit.at.now;
        let hold = Hold {
            tokens: visit.tokens.draw(now, LIMITS.grants(claim.grants)),
            ends: now + LIMITS.lease(claim.lease),
            claim,
        };
        let standing = hold.standing(visit);
        self.holds.push(hold);
        standing
    }

    /// Lets the claim wait: a fair one in the queue, where it may have a place already. Of an unfair one
    /// nothing is left.
    fn wait(&mut self, claim: Arc<Claim>, place: Option<usize>, now: Instant) -> AcquireReply {
        let before = place.unwrap_or_else(|| self.queue().count());
        let poll_after = self.poll_after(&claim, before, now);
        if claim.fairness == Fairness::Unfair {
            let ahead = None;
            return AcquireReply::Waiting { ahead, poll_after };
        }
        let ends = now + LIMITS.lease(claim.lease);
        match place {
            Some(at) => self.crowd().queue[at].ends = ends,
            None => self.crowd().queue.push_back(Place { claim, ends }),
        }
        let ahead = u32::try_from(before).ok();
        AcquireReply::Waiting { ahead, poll_after }
    }

    /// Ends a claim, whether it holds, waits, or has not been placed yet.
    fn depart(
        &mut self,
        id: ClaimId,
        cause: &Cause,
        cooldown: Duration,
        visit: &mut Visit<'_>,
    ) -> Option<HolderId> {
        let ends = self.take_out(id, cooldown, visit.at.now);
        visit.end(id);
        let evicted = match cause {
            Cause::Evicted { by } => Some(by.clone()),
            Cause::Unlocked | Cause::Withdrawn => None,
        };
        self.retire(id, evicted.is_some(), visit);
        let ends = ends?;
        visit.freed = true;
        if let Some(by) = evicted {
            visit.fates.explain(id, Loss::Evicted { by }, ends);
        }
        Some(HolderId::Claim(id))
    }

    /// Takes a claim out of the room: its lease's end, if it was here. One that held the key leaves the cooldown
    /// behind.
    fn take_out(&mut self, id: ClaimId, cooldown: Duration, now: Instant) -> Option<Instant> {
        if let Some(at) = self.holds.iter().position(|hold| hold.claim.at.id == id) {
            if !cooldown.is_zero() {
                self.crowd().cooldown = Some(now + cooldown);
            }
            return Some(self.holds.remove(at).ends);
        }
        let at = self.place_of(id)?;
        self.crowd().queue.remove(at).map(|place| place.ends)
    }

    /// Ends every claim whose lease has ended. It happens first in each visit, so that nobody ever meets a
    /// dead claim, and no dead claim is renewed or granted.
    pub(crate) fn bury_the_dead(&mut self, visit: &mut Visit<'_>) {
        let now = visit.at.now;
        let mut dead: SmallVec<[ClaimId; 1]> = SmallVec::new();
        let mut lives = |claim: &Claim, ends: Instant| {
            if ends <= now {
                dead.push(claim.at.id);
            }
            now < ends
        };
        self.holds.retain(|hold| lives(&hold.claim, hold.ends));
        if let Some(crowd) = &mut self.crowd {
            crowd.queue.retain(|place| lives(&place.claim, place.ends));
        }
        for id in dead {
            visit.expire(id);
            self.retire(id, true, visit);
        }
    }

    /// Gives up what is needed no more. Whether nothing is left, so that the room can go too.
    pub(crate) fn tidy(&mut self, now: Instant) -> bool {
        if self.crowd.as_ref().is_some_and(|crowd| crowd.is_over(now)) {
            self.crowd = None;
        }
        self.holds.is_empty() && self.crowd.is_none()
    }

    /// What the key is used as, while somebody holds it or queues for it.
    fn kind(&self) -> Option<Kind> {
        let holder = self.holds.first().map(|hold| &hold.claim);
        let someone = holder.or_else(|| self.queue().next().map(|place| &place.claim));
        someone.map(|claim| claim.mode.kind())
    }

    fn hold_mut(&mut self, id: ClaimId) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.claim.at.id == id)
    }

    /// How many queue members are before the claim, if it is one of them.
    pub(crate) fn place_of(&self, id: ClaimId) -> Option<usize> {
        self.queue().position(|place| place.claim.at.id == id)
    }

    pub(crate) fn queue(&self) -> impl Iterator<Item = &Place> {
        self.crowd.iter().flat_map(|crowd| &crowd.queue)
    }

    pub(crate) fn crowd(&mut self) -> &mut Crowd {
        self.crowd.get_or_insert_default()
    }
}

impl Crowd {
    fn is_over(&self, now: Instant) -> bool {
        self.queue.is_empty()
            && self.watchers.is_empty()
            && self.cooldown.is_none_or(|cooldown| cooldown <= now)
    }
}

impl Hold {
    fn standing(&self, visit: &Visit<'_>) -> AcquireReply {
        AcquireReply::Granted(Grant {
            tokens: Some(self.tokens),
            held_from: visit.at.asked,
            lease: LIMITS.lease(self.claim.lease),
            evidence: None,
        })
    }
}
