//! The model: what the store must know after each answer, and whether the answer was one that the contract allows.
//! Written from the contract's own words. It decides nothing where they leave a choice, but follows the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimRef, Effect, Fairness, Fault, Fencing, Grant, HolderId, Instant,
    Liveness, LockKey, LockStatus, Order, Profile, Query, TokenRange,
};

use super::room::{At, Ends, Phase, Present, Room};
use crate::{Reply, Request};

/// How much later than the store's own lateness the end of a lease may be seen.
const GRACE: Duration = Duration::from_millis(100);
/// How long a call may take without a lease ending under it.
const CALL: Duration = Duration::from_millis(100);

/// What is wrong with an answer, in words.
pub(super) type Verdict = Result<(), String>;

/// Returns from a judgement with the words, unless the condition holds.
macro_rules! must {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+));
        }
    };
}
pub(super) use must;

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) profile: Profile,
    pub(super) rooms: BTreeMap<LockKey, Room>,
    /// How claims have ended. One that was never placed, or left nothing behind, is not here.
    pub(super) ended: HashMap<ClaimRef, Fate>,
}

/// How a claim has ended.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    Released,
    Expired,
    /// Its holder learns by whom until then at the least.
    Evicted {
        by: Option<Arc<str>>,
        until: Instant,
    },
}

/// Where a claim is, as the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Absent,
    Waiting,
    Granted(Option<TokenRange>),
    Ended,
}

/// How a claim comes to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comes {
    ByItself,
    /// As a successor, while so many queue for other clients.
    AsHeir(usize),
}

impl Ledger {
    pub(super) fn new(profile: Profile) -> Self {
        Ledger {
            profile,
            rooms: BTreeMap::new(),
            ended: HashMap::new(),
        }
    }

    /// Until when to wait before the next call, so that no lease ends while it is on its way.
    pub(super) fn unsure_until(&self, now: Instant) -> Option<Instant> {
        let present = self.rooms.values().flat_map(|room| &room.present);
        let close = |ends: &Ends| ends.earliest <= now + CALL && now < ends.latest;
        present
            .map(|one| one.ends)
            .filter(close)
            .map(|ends| ends.latest)
            .max()
    }

    /// Whether a lease may have ended while a call was on its way after all.
    pub(super) fn was_overtaken(&self, at: At) -> bool {
        let mut present = self.rooms.values().flat_map(|room| &room.present);
        present.any(|one| one.ends.earliest <= at.after)
    }

    /// Ends every lease that has ended.
    pub(super) fn settle(&mut self, now: Instant) {
        for room in self.rooms.values_mut() {
            let dead: Vec<Present> = room
                .present
                .extract_if(.., |one| one.ends.latest <= now)
                .collect();
            for one in dead {
                self.ended.insert(one.claim.at.clone(), Fate::Expired);
                room.was_left(now);
            }
        }
    }

    pub(super) fn place(&mut self, claim: &ClaimRef) -> Place {
        if self.ended.contains_key(claim) {
            return Place::Ended;
        }
        match self.room(&claim.key).find(claim.id).map(|one| one.phase) {
            None => Place::Absent,
            Some(Phase::Waiting) => Place::Waiting,
            Some(Phase::Granted(run)) => Place::Granted(run),
        }
    }

    pub(super) fn room(&mut self, key: &LockKey) -> &mut Room {
        self.rooms.entry(key.clone()).or_default()
    }

    /// When a lease ends that the store counts from a moment between `from` and the answer.
    pub(super) fn ends(&self, from: Instant, at: At, lease: Duration) -> Ends {
        if self.profile.liveness == Liveness::Session {
            return Ends {
                earliest: Instant::NEVER,
                latest: Instant::NEVER,
            };
        }
        Ends {
            earliest: from + lease,
            latest: at.after + lease + self.profile.limits.expiry_slack + GRACE,
        }
    }

    /// Judges the answer to a request.
    pub(super) fn judge(
        &mut self,
        request: &Request,
        at: At,
        answer: &Result<Reply, BackendError>,
    ) -> Verdict {
        match (request, answer) {
            (Request::Acquire(claim, not_after), Ok(Reply::Acquire(standing))) => {
                self.stands(claim, *not_after, at, standing, Comes::ByItself)
            }
            (Request::Acquire(claim, _), Err(error)) => self.is_refused(claim, error),
            (Request::Renew(renewal), Ok(Reply::Renew(renewed))) => self.renew(renewal, at, renewed),
            (Request::Release(departure), Ok(Reply::Release(released))) => {
                self.release(departure, at, released)
            }
            (Request::Inspect(Query::Key(key)), Ok(Reply::Inspect(page))) => {
                self.shows(key, at, page.items.first())
            }
            _ => Err("the store is in order".to_owned()),
        }
    }

    pub(super) fn stands(
        &mut self,
        claim: &Arc<Claim>,
        not_after: Instant,
        at: At,
        answer: &AcquireReply,
        comes: Comes,
    ) -> Verdict {
        let place = self.place(&claim.at);
        match answer {
            AcquireReply::Ended => must!(place == Place::Ended, "it has not ended: it is {place:?}"),
            AcquireReply::TooLate => {
                let placed = matches!(place, Place::Waiting | Place::Granted(_));
                must!(
                    !placed,
                    "it is placed already and may be polled later than its `not_after`"
                );
                must!(at.after >= not_after, "its `not_after` has not passed");
            }
            AcquireReply::Recovering => return Err("the store has lost nothing".to_owned()),
            AcquireReply::Waiting { ahead, poll_after } => {
                self.waits(claim, place, not_after, at, comes)?;
                let room = self.room(&claim.at.key);
                let most = room.present.len();
                must!(
                    ahead.is_none_or(|ahead| ahead as usize <= most),
                    "{most} claims are there, and not more"
                );
                let last = room.last_end().filter(|_| !room.may_keep(at));
                must!(
                    last.is_none_or(|last| at.before + *poll_after <= last),
                    "a dead holder's lease ends before that"
                );
            }
            AcquireReply::Granted(grant) => self.is_granted(claim, place, not_after, at, grant)?,
        }
        Ok(())
    }

    fn is_refused(&mut self, claim: &Claim, error: &BackendError) -> Verdict {
        let place = self.place(&claim.at);
        let held = self.room(&claim.at.key).kind();
        let asked = claim.mode.kind();
        must!(
            place == Place::Absent,
            "only a claim that is absent can be refused"
        );
        let held = held.filter(|held| *held != asked);
        let expected = held.map(|held| Fault::Mismatch { held, asked });
        must!(
            Some(error.fault()) == expected && error.effect() == Effect::None,
            "the key is {held:?}, and the profile serves what was asked"
        );
        Ok(())
    }

    fn waits(
        &mut self,
        claim: &Arc<Claim>,
        place: Place,
        not_after: Instant,
        at: At,
        comes: Comes,
    ) -> Verdict {
        must!(
            matches!(place, Place::Absent | Place::Waiting),
            "it does not wait: it is {place:?}"
        );
        let queues = self.queues(claim);
        let least = claim.lease.max(self.profile.limits.min_lease);
        let ends = self.ends(at.before, at, least);
        let room = self.room(&claim.at.key);
        if room.kind().is_some_and(|kind| kind != claim.mode.kind()) {
            must!(comes != Comes::ByItself, "the key is of another kind");
            // A successor of another kind is told so when it asks for itself.
            return Ok(());
        }
        let yields = matches!(comes, Comes::AsHeir(others) if others > 0);
        let excused = yields || room.may_keep(at) || room.keeps_out(claim, at).is_some();
        must!(excused, "nothing is in its way");
        if !queues {
            return Ok(());
        }
        must!(
            place == Place::Waiting || at.before <= not_after,
            "it was placed after its `not_after`"
        );
        room.keep(claim, ends, Phase::Waiting);
        Ok(())
    }

    /// Whether a claim that is not granted stays in the store.
    fn queues(&self, claim: &Claim) -> bool {
        claim.fairness == Fairness::Fifo || self.profile.order(claim.mode) == Order::FifoForBoth
    }

    fn is_granted(
        &mut self,
        claim: &Arc<Claim>,
        place: Place,
        not_after: Instant,
        at: At,
        grant: &Grant,
    ) -> Verdict {
        must!(place != Place::Ended, "it has ended and is never granted again");
        let Grant { held_from, lease, .. } = *grant;
        must!(held_from <= at.after, "it is not held from the future");
        must!(held_from + lease > at.before, "a grant that has ended is none");
        let ends = self.ends(held_from, at, lease);
        let (fences, most) = (
            self.profile.fencing != Fencing::None,
            self.profile.limits.max_grants,
        );
        let room = self.room(&claim.at.key);
        if let Place::Granted(run) = place {
            must!(grant.tokens == run, "its tokens are {run:?}");
        } else {
            let other = room.kind().filter(|kind| *kind != claim.mode.kind());
            must!(other.is_none(), "the key is {other:?}");
            must!(
                place == Place::Waiting || at.before <= not_after,
                "it was placed after its `not_after`"
            );
            if let Some(reason) = room.keeps_out(claim, at) {
                return Err(reason);
            }
            must!(
                grant.tokens.is_some() == fences,
                "the profile says otherwise of tokens"
            );
        }
        if let (Some(run), true) = (grant.tokens, !matches!(place, Place::Granted(_))) {
            let floor = room.floor();
            let own = room.find(claim.at.id).and_then(|one| one.raised) == Some(run);
            must!(
                own || Some(run.first()) > floor,
                "its token must be beyond {floor:?}"
            );
            must!(
                own || run.count() == claim.grants.min(most),
                "its run must be as long as asked"
            );
            room.has_drawn(run);
        }
        room.keep(claim, ends, Phase::Granted(grant.tokens));
        Ok(())
    }

    /// Judges what is shown of a key.
    fn shows(&mut self, key: &LockKey, at: At, status: Option<&LockStatus>) -> Verdict {
        let sees_queue = self.profile.inspection.queue;
        let shows_late = self.profile.first_renewal.is_some();
        let room = self.room(key);
        let Some(status) = status else {
            let queue_alone = room.holders().next().is_none() && !sees_queue;
            must!(room.present.is_empty() || queue_alone, "it is held or queued for");
            return Ok(());
        };
        must!(Some(status.kind) == room.kind(), "the key is {:?}", room.kind());
        for one in room.holders() {
            let id = HolderId::Claim(one.claim.at.id);
            let Some(shown) = status.holders.iter().find(|shown| shown.id == id) else {
                return Err(format!("{id} holds the key"));
            };
            let token = match one.phase {
                Phase::Granted(Some(run)) => Some(run.first()),
                _ => None,
            };
            let shows = shown.token == token || shows_late && shown.token.is_none();
            must!(
                shows && shown.mode == one.claim.mode,
                "{id} is {}, with token {token:?}",
                one.claim.mode
            );
        }
        let held = |id: &HolderId| room.holders().any(|one| HolderId::Claim(one.claim.at.id) == *id);
        for shown in status.holders.iter().filter(|shown| !held(&shown.id)) {
            // A store may know whose turn it is before the claim has been told.
            let next = |one: &&Present| HolderId::Claim(one.claim.at.id) == shown.id;
            let next = room.queue().find(next);
            must!(
                next.is_some_and(|one| room.keeps_out(&one.claim, at).is_none()),
                "{} does not hold the key",
                shown.id
            );
        }
        if let Some(waiters) = &status.waiters {
            let held = |id: &HolderId| status.holders.iter().any(|shown| shown.id == *id);
            let queue = room.queue().map(|one| HolderId::Claim(one.claim.at.id));
            let queue: Vec<HolderId> = queue.filter(|id| !held(id)).collect();
            let shown: Vec<HolderId> = waiters.iter().map(|waiter| waiter.id.clone()).collect();
            must!(shown == queue, "the queue is {queue:?}");
        }
        Ok(())
    }
}
