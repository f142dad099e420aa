//! Acquiring: places the key of a claim, or looks which contenders are before it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, Effect, Evidence, Fairness, Grant, Instant, Loss, Mode,
    TokenRange,
};
use tenure_contenders::{Contenders as _, Known, placed_but};

use super::confirm::{Confirmed, MAX_REPEATS, in_use, unsettled};
use super::contenders::{Standing, contenders, standing, value_of};
use super::evidence::LockEvidence;
use super::leases::Kept;
use super::placed::{Found, Placed, Spot, Target};
use super::profile::{EXPIRY_SLACK, tokens};
use super::requests::{created, delete, is_in_epoch, put, read};
use super::store::Locks;
use crate::client::{Compare, KeyValue, Op, Operand, RANGE, RangeRequest, is_missing_lease};

/// The longest pause between two polls of a claim that waits. etcd reports the end of each key, but not when it will come, so
/// the pause is as long as the end of a lease may be late.
const MAX_POLL_AFTER: Duration = EXPIRY_SLACK;

/// The outcome of an attempt to place a claim.
pub(super) enum Attempt {
    /// The claim has its key, from this request or an earlier one.
    Placed(Arrived),
    /// Nothing was written: the state that the claim would have had.
    Refused(Standing),
    /// The place cannot be used, and was given up.
    Unusable,
}

/// A claim that has its key.
pub(super) struct Arrived {
    /// Revision that created the key.
    created: i64,
    kept: Kept,
    /// When the request was sent.
    sent: Instant,
    /// Whether this reply confirms the lease from `kept` on.
    is_proved: bool,
    standing: Standing,
    /// Revision of `standing`.
    revision: i64,
}

/// A claim's key, as its client wrote it last.
struct Own<'a> {
    key: &'a [u8],
    created: i64,
    modified: i64,
}

impl Locks {
    pub(super) async fn acquire_in_turn(
        self: &Arc<Self>,
        claim: &Claim,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let id = claim.at.id;
        match self.table.know(id) {
            Known::Ended => return Ok(AcquireReply::Ended),
            Known::Placed(placed) => return self.poll(claim, *placed).await,
            Known::Unplaced { .. } if self.now() > not_after => return Ok(AcquireReply::TooLate),
            Known::Unplaced { .. } => {}
        }
        let mut tries = claim.fairness == Fairness::Unfair;
        for _ in 0..MAX_REPEATS {
            let spot = self.spot(claim).await?;
            match self.place(claim, &spot, tries, None).await? {
                Attempt::Placed(arrived) => return self.settle(claim, spot, arrived, not_after).await,
                // Others hold the lock, and admit it.
                Attempt::Refused(Standing::Granted) => tries = false,
                Attempt::Refused(standing) => {
                    self.table.unplace(id);
                    return self.refuse(claim, standing);
                }
                Attempt::Unusable => {}
            }
        }
        Err(unsettled())
    }

    /// Returns the place that is reserved for a claim, or reserves one.
    pub(super) async fn spot(&self, claim: &Claim) -> Result<Spot, BackendError> {
        let (id, key) = (claim.at.id, &claim.at.key);
        if let Known::Unplaced { spot: Some(spot), .. } = self.table.know(id) {
            self.leases.refresh(&spot.lease).await?;
            if spot.lease.is_alive() {
                return Ok(spot);
            }
            // A request in flight needs this lease, whose keys end with it.
            self.table.abandon(id);
        }
        let ttl = self.ttl(claim.lease);
        let lease = self.leases.reserve(id.client(), ttl, key).await?;
        let record = claim
            .is_candidate
            .then(|| self.value(claim).with_label(None).write());
        let spot = Spot {
            key: self.names.contender(key, lease.id, record.as_deref()).into(),
            lease,
        };
        self.table.reserve(id, &spot);
        Ok(spot)
    }

    /// Writes a claim's key.
    ///
    /// The condition on the bell's value refuses requests of an earlier epoch, which a slow network may deliver after their
    /// claim was withdrawn. With `tries`, the key is written only if the lock has no contender. With `released`, its key is
    /// deleted in the same step.
    pub(super) async fn place(
        &self,
        claim: &Claim,
        spot: &Spot,
        tries: bool,
        released: Option<&Placed>,
    ) -> Result<Attempt, BackendError> {
        let (id, mode, lease) = (claim.at.id, claim.mode, &spot.lease);
        let folder = self.names.folder(&claim.at.key);
        for _ in 0..MAX_REPEATS {
            let (kept, epoch, sent) = (lease.kept(), lease.epoch(), self.now());
            let mut compare = vec![created(&spot.key, 0), is_in_epoch(&lease.bell, epoch)];
            let mut then = Vec::new();
            if let Some(released) = released {
                compare.extend(released.unchanged());
                then.push(delete(&released.spot.key));
            }
            if tries {
                let alone = released.map_or(0, |released| released.created);
                compare.push(Compare::prefix(&*folder, Operand::CreateRevision(alone)));
            }
            then.push(put(&*spot.key, self.written(claim), Some(lease.id)));
            let look = Op::Range(before(&folder, mode, None));
            then.push(look.clone());
            let otherwise = vec![read(&*spot.key), read(&*lease.bell), look];
            let mut reply = match self.client.txn(compare, then, otherwise).await {
                Ok(reply) => reply,
                Err(error) => return self.not_placed(id, spot, error),
            };
            let found = reply.take_last();
            let own = reply.first(0);
            let owner = own.and_then(|own| value_of(&own.key, &own.value));
            let is_own = owner.is_some_and(|value| value.id == id);
            let placed_at = match own {
                _ if reply.succeeded => Some(reply.header.revision),
                Some(own) if is_own && released.is_none() => Some(own.create_revision),
                _ => None,
            };
            let revision = reply.header.revision;
            if let Some(created) = placed_at {
                let own = Own {
                    key: &spot.key,
                    created,
                    modified: created,
                };
                let state = self.standing_before(&folder, mode, Some(own), found, revision);
                let state = state.await.ok().flatten();
                let is_proved = reply.succeeded && kept.is_proved_by(&reply.header) && state.is_some();
                let (standing, revision) = state.unwrap_or(UNCLEAR);
                return Ok(Attempt::Placed(Arrived {
                    created,
                    kept,
                    sent,
                    is_proved,
                    standing,
                    revision,
                }));
            }
            if released.is_some() {
                return Ok(Attempt::Refused(Standing::Waits { behind: None }));
            }
            let bell = reply.first(1);
            match bell.map(read_epoch) {
                Some(now) if own.is_none() && now != epoch => lease.set_epoch(now),
                Some(_) if own.is_none() => {
                    let state = self.standing_before(&folder, mode, None, found, revision);
                    let state = state.await?;
                    let (standing, _) = state.unwrap_or(UNCLEAR);
                    return Ok(Attempt::Refused(standing));
                }
                // A request in flight may still write the key, once the claim that has it leaves.
                Some(_) if self.is_in_flight(id) => return Err(in_use()),
                // The key is in use, or the bell is missing: nothing can be placed there.
                bell => {
                    if bell.is_none() {
                        lease.retire();
                    }
                    self.table.abandon(id);
                    return Ok(Attempt::Unusable);
                }
            }
        }
        Err(unsettled())
    }

    /// Returns whether a request to place a claim was not answered.
    fn is_in_flight(&self, id: ClaimId) -> bool {
        matches!(
            self.table.know(id),
            Known::Unplaced {
                is_in_flight: true,
                ..
            }
        )
    }

    /// Records that a request to place a claim has failed.
    fn not_placed(&self, id: ClaimId, spot: &Spot, error: BackendError) -> Result<Attempt, BackendError> {
        if is_missing_lease(&error) {
            spot.lease.end();
            self.table.abandon(id);
            return Ok(Attempt::Unusable);
        }
        match error.effect() {
            Effect::Unknown => self.table.unanswered(id, self.now() + spot.lease.ttl),
            Effect::None => self.table.unplace(id),
        }
        Err(error)
    }

    /// Records a key that was created, and answers by its state. Removes it if the claim must not wait, or came too late.
    pub(super) async fn settle(
        self: &Arc<Self>,
        claim: &Claim,
        spot: Spot,
        arrived: Arrived,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let placed = Placed {
            value: self.value(claim),
            created: arrived.created,
            modified: arrived.created,
            granted: None,
            found: Found::default(),
            ends: arrived.kept.at + spot.lease.ttl,
            spot,
        };
        self.table.place(claim.at.id, placed.clone());
        let is_late = self.now() > not_after;
        let must_leave = match arrived.standing {
            Standing::Granted => false,
            Standing::Waits { .. } => claim.fairness == Fairness::Unfair,
            Standing::OtherKind(_) => true,
        };
        if is_late || must_leave {
            let removed = self.unlock(claim.at.id, &placed).await;
            if !removed.map_err(placed_but)? {
                return Ok(AcquireReply::Ended);
            }
            self.table.unplace(claim.at.id);
            return match is_late {
                true => Ok(AcquireReply::TooLate),
                false => self.refuse(claim, arrived.standing),
            };
        }
        if !arrived.is_proved {
            return self.poll(claim, placed).await.map_err(placed_but);
        }
        let Arrived { kept, sent, .. } = arrived;
        Ok(self.answer(claim, &placed, (kept, sent), arrived.standing, arrived.revision))
    }

    /// Asks for the state of a claim that has its key, which restarts its lease.
    async fn poll(self: &Arc<Self>, claim: &Claim, placed: Placed) -> Result<AcquireReply, BackendError> {
        let (id, mode) = (claim.at.id, placed.value.mode);
        let folder = self.names.folder(&claim.at.key);
        let look = || {
            let before = before(&folder, mode, Some(placed.created));
            vec![read(&*placed.spot.key), Op::Range(before)]
        };
        let is_held = placed.granted.is_some();
        let Some(Confirmed {
            kept,
            sent,
            mut reply,
        }) = self.confirmed(&placed.spot.lease, is_held, look).await?
        else {
            self.lose(id, &placed, Loss::Session);
            return Ok(AcquireReply::Ended);
        };
        if !self.is_own(id, &placed, reply.first(0)).await? {
            return Ok(AcquireReply::Ended);
        }
        let earlier = reply.take_last();
        let (standing, revision) = match is_held {
            true => (Standing::Granted, reply.header.revision),
            false => {
                let own = Own {
                    key: &placed.spot.key,
                    created: placed.created,
                    modified: placed.modified,
                };
                let state = self.standing_before(&folder, mode, Some(own), earlier, reply.header.revision);
                state.await?.unwrap_or(UNCLEAR)
            }
        };
        let ends = kept.at + placed.spot.lease.ttl;
        self.table.update(id, placed.created, |placed| placed.ends = ends);
        Ok(self.answer(claim, &placed, (kept, sent), standing, revision))
    }

    /// Answers by the state of a claim that has its key, at this revision, and whose lease counts from `kept` on. `sent` is when the
    /// request was sent that found the key.
    fn answer(
        &self,
        claim: &Claim,
        placed: &Placed,
        (kept, sent): (Kept, Instant),
        standing: Standing,
        revision: i64,
    ) -> AcquireReply {
        let id = claim.at.id;
        if standing == Standing::Granted {
            let tokens = placed.granted.or_else(|| match self.config.etcdctl_fencing {
                true => TokenRange::new(u64::try_from(revision).ok()?.try_into().ok()?, NonZeroU32::MIN),
                false => tokens(placed.created, placed.value.grants),
            });
            // The claim may have ended meanwhile.
            if !self
                .table
                .update(id, placed.created, |placed| placed.granted = tokens)
            {
                return AcquireReply::Ended;
            }
            let mut grant = Grant::new(tokens, kept.at, placed.spot.lease.ttl);
            grant.confirmed_from = sent;
            let (key, created) = (placed.spot.key.clone(), placed.created);
            grant.evidence = Some(Evidence::new(LockEvidence::new(
                key,
                created,
                self.client.clone(),
            )));
            return AcquireReply::Granted(grant);
        }
        let target = match standing {
            Standing::Waits { behind: Some(key) } => Target::Key(key),
            _ => Target::Folder,
        };
        let found = Found { target, revision };
        self.watched.set(id, found.clone());
        self.table
            .update(id, placed.created, |placed| placed.found = found);
        self.waiting(claim)
    }

    /// Answers a claim that has no key, by the state that it would have.
    fn refuse(&self, claim: &Claim, standing: Standing) -> Result<AcquireReply, BackendError> {
        match standing {
            Standing::OtherKind(held) => Err(BackendError::mismatch(held, claim.mode.kind())),
            _ => Ok(self.waiting(claim)),
        }
    }

    fn waiting(&self, claim: &Claim) -> AcquireReply {
        AcquireReply::Waiting {
            ahead: None,
            poll_after: MAX_POLL_AFTER.min(self.ttl(claim.lease) / 3),
        }
    }

    /// Returns the state of a claim of this mode and the revision of that state, by the keys that [`before`] has read at `revision`.
    /// Reads more if they do not decide. `own` is the claim's key, if it has one. `None` if that key has changed since: the claim was
    /// evicted, and another one may hold the lock.
    async fn standing_before(
        &self,
        folder: &str,
        mode: Mode,
        own: Option<Own<'_>>,
        keys: Vec<KeyValue>,
        revision: i64,
    ) -> Result<Option<(Standing, i64)>, BackendError> {
        let is_earlier = |one: &KeyValue| own.as_ref().is_none_or(|own| one.create_revision < own.created);
        let keys: Vec<KeyValue> = keys.into_iter().filter(is_earlier).collect();
        let (is_complete, earlier) = (!reads_one(mode) || keys.is_empty(), contenders(folder, keys));
        let state = standing(mode, &earlier);
        if is_complete || matches!(state, Standing::Waits { .. }) {
            return Ok(Some((state, revision)));
        }
        // The key belongs to a lock such as `a/b` in the folder of `a`, or its kind is not that of the first one.
        let all = self.client.call(RANGE, RangeRequest::prefix(folder)).await?;
        let is_unchanged = own.as_ref().is_none_or(|own| {
            let is_own = |one: &KeyValue| one.key == own.key && one.mod_revision == own.modified;
            all.kvs.iter().any(is_own)
        });
        let earlier = contenders(folder, all.kvs.into_iter().filter(is_earlier).collect());
        let revision = all.header.revision;
        Ok(is_unchanged.then(|| (standing(mode, &earlier), revision)))
    }
}

/// A state that the next poll must find out. It has no revision, so the claim's watch wakes it at once.
const UNCLEAR: (Standing, i64) = (Standing::Waits { behind: None }, 0);

/// Returns whether the contender directly before decides the state of a claim of this mode.
fn reads_one(mode: Mode) -> bool {
    matches!(mode, Mode::Exclusive | Mode::Write)
}

/// Reads the contenders that decide the state of a claim: the one before it, or all. Without `created`, the claim's own key may
/// be the newest.
fn before(folder: &str, mode: Mode, created: Option<i64>) -> RangeRequest {
    let all = RangeRequest {
        max_create_revision: created.map_or(0, |created| created - 1),
        ..RangeRequest::prefix(folder)
    };
    match reads_one(mode) {
        true => all.newest(1 + i64::from(created.is_none())),
        false => all,
    }
}

/// The epoch that a bell says; 0, which no lease has, for a text that this client does not write.
pub(super) fn read_epoch(bell: &KeyValue) -> u64 {
    let text = std::str::from_utf8(&bell.value);
    text.ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}
