//! The model: the state that the store must have after each reply, and whether the contract allows the reply. It is
//! written from the contract's text. If the contract allows several replies, the model follows the store's.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimRef, Effect, Fairness, Fault, Fencing, Grant, HolderId, Instant,
    Liveness, LockKey, LockStatus, Profile, Query, TURN, TokenRange,
};

use super::key_state::{CallTimes, ExpiryRange, KeyState, Phase, PlacedClaim};
use crate::{Reply, Request};

/// Extra time that a lease may last beyond its end and the store's `expiry_slack`.
const GRACE: Duration = Duration::from_millis(100);
/// Expected maximum duration of a call. Walks start no call if a lease may end within this time.
const CALL_TIME: Duration = Duration::from_millis(100);

/// Result of checking a reply. The error says what is wrong with the reply.
pub(super) type Verdict = Result<(), String>;

/// Returns an error with the formatted message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!($($words)+));
        }
    };
}
pub(super) use ensure;

#[derive(Debug)]
pub(super) struct ModelState {
    pub(super) profile: Profile,
    pub(super) keys: BTreeMap<LockKey, KeyState>,
    /// Ended claims and how they ended. A claim that was never placed is here only if a release has named it.
    pub(super) ended: HashMap<ClaimRef, Ending>,
}

#[derive(Clone, Debug)]
pub(super) enum Ending {
    Released,
    Expired,
    /// Evicted by `by`. The store must report this to the holder until `until`, and may do so later.
    Evicted {
        by: Option<Arc<str>>,
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimStatus {
    Absent,
    Waiting,
    Granted(Option<TokenRange>),
    Ended,
}

/// Request that places a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    OwnRequest,
    /// A release that names the claim as successor while this many waiters of other clients queue.
    Successor(usize),
}

impl ModelState {
    pub(super) fn new(profile: Profile) -> Self {
        ModelState {
            profile,
            keys: BTreeMap::new(),
            ended: HashMap::new(),
        }
    }

    /// Time until which the walk must wait, because a lease may end during a call made now.
    pub(super) fn uncertain_until(&self, now: Instant) -> Option<Instant> {
        let placed = self.keys.values().flat_map(|key_state| &key_state.placed);
        let close = |ends: &ExpiryRange| ends.earliest <= now + CALL_TIME && now < ends.latest;
        placed
            .map(|one| one.ends)
            .filter(close)
            .map(|ends| ends.latest)
            .max()
    }

    /// Returns whether a lease may have ended before the reply arrived.
    pub(super) fn may_have_expired_during(&self, at: CallTimes) -> bool {
        let mut placed = self.keys.values().flat_map(|key_state| &key_state.placed);
        placed.any(|one| one.ends.earliest <= at.after)
    }

    /// Removes claims whose leases have certainly ended, and records them as expired.
    pub(super) fn expire_leases(&mut self, now: Instant) {
        for key_state in self.keys.values_mut() {
            let dead: Vec<PlacedClaim> = key_state
                .placed
                .extract_if(.., |one| one.ends.latest <= now)
                .collect();
            for one in dead {
                self.ended.insert(one.claim.at.clone(), Ending::Expired);
            }
        }
    }

    pub(super) fn status(&mut self, claim: &ClaimRef) -> ClaimStatus {
        if self.ended.contains_key(claim) {
            return ClaimStatus::Ended;
        }
        match self.key_state(&claim.key).find(claim.id).map(|one| one.phase) {
            None => ClaimStatus::Absent,
            Some(Phase::Waiting) => ClaimStatus::Waiting,
            Some(Phase::Granted(run)) => ClaimStatus::Granted(run),
        }
    }

    pub(super) fn key_state(&mut self, key: &LockKey) -> &mut KeyState {
        self.keys.entry(key.clone()).or_default()
    }

    /// Range of the end of a lease that the store starts between `from` and the reply.
    pub(super) fn ends(&self, from: Instant, at: CallTimes, lease: Duration) -> ExpiryRange {
        if self.profile.liveness == Liveness::Session {
            return ExpiryRange {
                earliest: Instant::NEVER,
                latest: Instant::NEVER,
            };
        }
        ExpiryRange {
            earliest: from + lease,
            latest: at.after + lease + self.profile.limits.expiry_slack + GRACE,
        }
    }

    /// Period in which a cooldown ends that the store starts during the call.
    pub(super) fn cooldown_ends(&self, at: CallTimes, cooldown: Duration) -> ExpiryRange {
        ExpiryRange {
            earliest: at.before + cooldown,
            latest: at.after + cooldown + self.profile.limits.expiry_slack + GRACE,
        }
    }

    /// Checks the store's reply to a request, and updates the model.
    pub(super) fn check(
        &mut self,
        request: &Request,
        at: CallTimes,
        answer: &Result<Reply, BackendError>,
    ) -> Verdict {
        match (request, answer) {
            (Request::Acquire(claim, not_after), Ok(Reply::Acquire(reply))) => {
                self.check_acquire(claim, *not_after, at, reply, Origin::OwnRequest)
            }
            (Request::Acquire(claim, _), Err(error)) => self.check_refused(claim, error),
            (Request::Renew(renewal), Ok(Reply::Renew(renewed))) => self.renew(renewal, at, renewed),
            (Request::Renew(renewal), Err(error)) => self.renewal_refused(renewal, error),
            (Request::Release(release), Ok(Reply::Release(released))) => self.release(release, at, released),
            (Request::Inspect(Query::Key(key)), Ok(Reply::Inspect(page))) => {
                self.token_fits(key, at, page.items.first())
            }
            _ => Err("the call must not fail".to_owned()),
        }
    }

    pub(super) fn check_acquire(
        &mut self,
        claim: &Arc<Claim>,
        not_after: Instant,
        at: CallTimes,
        answer: &AcquireReply,
        origin: Origin,
    ) -> Verdict {
        let status = self.status(&claim.at);
        match answer {
            AcquireReply::Ended => ensure!(
                status == ClaimStatus::Ended,
                "the claim has not ended: it is {status:?}"
            ),
            AcquireReply::TooLate => {
                let placed = matches!(status, ClaimStatus::Waiting | ClaimStatus::Granted(_));
                ensure!(
                    !placed,
                    "the claim is placed already, and may be polled after its `not_after`"
                );
                ensure!(at.after >= not_after, "its `not_after` has not passed");
            }
            AcquireReply::Recovering => return Err("the store has not lost its data".to_owned()),
            AcquireReply::Waiting { ahead, poll_after } => {
                self.waits(claim, status, not_after, at, origin, *poll_after)?;
                let key_state = self.key_state(&claim.at.key);
                let most = key_state.placed.len();
                ensure!(
                    ahead.is_none_or(|ahead| ahead as usize <= most),
                    "the key has only {most} claims"
                );
                let last = key_state.last_end().filter(|_| !key_state.may_cool_down(at));
                ensure!(
                    last.is_none_or(|last| at.before + *poll_after <= last),
                    "a lease on the key ends before `poll_after`"
                );
            }
            AcquireReply::Granted(grant) => self.check_granted(claim, status, not_after, at, grant)?,
        }
        Ok(())
    }

    fn check_refused(&mut self, claim: &Claim, error: &BackendError) -> Verdict {
        let status = self.status(&claim.at);
        let held = self.key_state(&claim.at.key).kind();
        let asked = claim.mode.kind();
        ensure!(
            status == ClaimStatus::Absent,
            "only an absent claim can be refused"
        );
        let held = held.filter(|held| *held != asked);
        let expected = held.map(|held| Fault::Mismatch { held, asked });
        ensure!(
            Some(error.fault()) == expected && error.effect() == Effect::None,
            "the key has kind {held:?}, and the profile lists the requested mode"
        );
        Ok(())
    }

    fn waits(
        &mut self,
        claim: &Arc<Claim>,
        status: ClaimStatus,
        not_after: Instant,
        at: CallTimes,
        origin: Origin,
        poll_after: Duration,
    ) -> Verdict {
        ensure!(
            matches!(status, ClaimStatus::Absent | ClaimStatus::Waiting),
            "the claim does not wait: it is {status:?}"
        );
        let queues = self.queues(claim);
        let least = claim.lease.max(self.profile.limits.min_lease);
        let ends = self.ends(at.before, at, least);
        let key_state = self.key_state(&claim.at.key);
        if key_state.kind().is_some_and(|kind| kind != claim.mode.kind()) {
            ensure!(origin != Origin::OwnRequest, "the key has another kind");
            // The key is in use as another kind of lock. The reply to the release may say that the successor waits:
            // it gets its `Mismatch` error when it polls.
            return Ok(());
        }
        // A walk watches no claim, so no store reserves a key for a waiter.
        if !key_state.may_cool_down(at) && key_state.obstacle(claim, at).is_none() {
            let yields = matches!(origin, Origin::Successor(others) if others > 0);
            ensure!(yields, "nothing prevents a grant");
            ensure!(
                poll_after == TURN || queues && poll_after < TURN,
                "the successor only yields, so it polls after {TURN:?}"
            );
        }
        if !queues {
            return Ok(());
        }
        ensure!(
            status == ClaimStatus::Waiting || at.before <= not_after,
            "the claim was placed after its `not_after`"
        );
        key_state.keep(claim, ends, Phase::Waiting);
        Ok(())
    }

    /// Returns whether the store queues the claim if it cannot grant it.
    fn queues(&self, claim: &Claim) -> bool {
        claim.fairness == Fairness::Fifo
    }

    fn check_granted(
        &mut self,
        claim: &Arc<Claim>,
        status: ClaimStatus,
        not_after: Instant,
        at: CallTimes,
        grant: &Grant,
    ) -> Verdict {
        ensure!(
            status != ClaimStatus::Ended,
            "the claim has ended, and must not be granted again"
        );
        let Grant { held_from, lease, .. } = *grant;
        ensure!(held_from <= at.after, "`held_from` is in the future");
        ensure!(
            held_from + lease > at.before,
            "the grant had ended before the call"
        );
        let ends = self.ends(held_from, at, lease);
        let (has_tokens, most) = (
            self.profile.fencing != Fencing::None,
            self.profile.limits.max_grants,
        );
        let key_state = self.key_state(&claim.at.key);
        if let ClaimStatus::Granted(run) = status {
            ensure!(grant.tokens == run, "the claim has the tokens {run:?}");
        } else {
            let other = key_state.kind().filter(|kind| *kind != claim.mode.kind());
            ensure!(other.is_none(), "the key has kind {other:?}");
            ensure!(
                status == ClaimStatus::Waiting || at.before <= not_after,
                "the claim was placed after its `not_after`"
            );
            if let Some(reason) = key_state.obstacle(claim, at) {
                return Err(reason);
            }
            ensure!(
                grant.tokens.is_some() == has_tokens,
                "the profile says otherwise about tokens"
            );
        }
        if let (Some(run), true) = (grant.tokens, !matches!(status, ClaimStatus::Granted(_))) {
            let floor = key_state.floor();
            let own = key_state.find(claim.at.id).and_then(|one| one.raised) == Some(run);
            ensure!(
                own || Some(run.first()) > floor,
                "the token must be greater than {floor:?}"
            );
            ensure!(
                own || run.count() == claim.grants.min(most),
                "the grant must have as many tokens as requested"
            );
            key_state.record_tokens(run);
        }
        key_state.keep(claim, ends, Phase::Granted(grant.tokens));
        Ok(())
    }

    /// Compares what `inspect` shows of a key with the model.
    fn token_fits(&mut self, key: &LockKey, at: CallTimes, status: Option<&LockStatus>) -> Verdict {
        let sees_queue = self.profile.inspection.queue;
        let shows_late = self.profile.first_renewal.is_some();
        let key_state = self.key_state(key);
        let Some(status) = status else {
            let queue_alone = key_state.holders().next().is_none() && !sees_queue;
            ensure!(
                key_state.placed.is_empty() || queue_alone,
                "the key has holders or waiters"
            );
            return Ok(());
        };
        ensure!(
            Some(status.kind) == key_state.kind(),
            "the key has kind {:?}",
            key_state.kind()
        );
        for one in key_state.holders() {
            let id = HolderId::Claim(one.claim.at.id);
            let Some(shown) = status.holders.iter().find(|shown| shown.id == id) else {
                return Err(format!("{id} holds the key"));
            };
            let token = match one.phase {
                Phase::Granted(Some(run)) => Some(run.first()),
                _ => None,
            };
            let token_fits = shown.token == token || shows_late && shown.token.is_none();
            ensure!(
                token_fits && shown.mode == one.claim.mode,
                "{id} is {}, with token {token:?}",
                one.claim.mode
            );
        }
        let held = |id: &HolderId| {
            key_state
                .holders()
                .any(|one| HolderId::Claim(one.claim.at.id) == *id)
        };
        for shown in status.holders.iter().filter(|shown| !held(&shown.id)) {
            // A store may show the next waiter as a holder before that waiter polls.
            let next = |one: &&PlacedClaim| HolderId::Claim(one.claim.at.id) == shown.id;
            let next = key_state.queue().find(next);
            ensure!(
                next.is_some_and(|one| key_state.obstacle(&one.claim, at).is_none()),
                "{} does not hold the key",
                shown.id
            );
        }
        if let Some(waiters) = &status.waiters {
            let held = |id: &HolderId| status.holders.iter().any(|shown| shown.id == *id);
            let queue = key_state.queue().map(|one| HolderId::Claim(one.claim.at.id));
            let queue: Vec<HolderId> = queue.filter(|id| !held(id)).collect();
            let shown: Vec<HolderId> = waiters.iter().map(|waiter| waiter.id.clone()).collect();
            ensure!(shown == queue, "the queue is {queue:?}");
        }
        Ok(())
    }
}
