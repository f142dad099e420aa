//! Acquiring: places the key of a claim, or looks which contenders are before it.

use std::num::NonZeroU32;
use std::sync::Arc;

use tenure_backend::{
    AcquireReply, BackendError, Claim, Effect, Evidence, Fairness, Grant, Instant, Loss, Mode, TokenRange,
};
use tenure_contenders::{Acquire, ClaimLease, Contenders as _, Known, placed_but, tokens};

use super::confirm::{Confirmed, MAX_REPEATS, in_use, unsettled};
use super::contenders::{Standing, contenders, standing, value_of};
use super::evidence::LockEvidence;
use super::placed::{Placed, Spot};
use super::requests::{created, delete, is_in_epoch, put, read};
use super::store::Locks;
use crate::client::{Compare, KeyValue, Op, Operand, RANGE, RangeRequest, is_missing_lease};

/// The outcome of a transaction that writes a claim's key.
pub(super) enum Attempt {
    /// The claim has its key, from this request or an earlier one. The reply if it proves the claim's state.
    Placed(Box<Placed>, Option<Confirmed>),
    /// Nothing was written: the state that the claim would have had.
    Refused(Standing),
    /// Nothing was written, because the lease is in a later epoch, or cannot be used.
    Again,
}

impl Acquire for Locks {
    async fn place(
        self: &Arc<Self>,
        claim: &Claim,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let mut tries = claim.fairness == Fairness::Unfair;
        for _ in 0..MAX_REPEATS {
            let spot = self.spot(claim).await?;
            // The lease may have been created slowly.
            if self.now() > not_after {
                self.table.unplace(claim.at.id);
                return Ok(AcquireReply::TooLate);
            }
            match self.write(claim, spot, tries, None).await? {
                Attempt::Placed(placed, confirmed) => {
                    return self.settle(claim, *placed, confirmed, not_after).await;
                }
                // Others hold the lock, and admit it.
                Attempt::Refused(Standing::Granted) => tries = false,
                Attempt::Refused(standing) => {
                    self.table.unplace(claim.at.id);
                    return self.refused(claim, standing);
                }
                Attempt::Again => {}
            }
        }
        Err(unsettled())
    }

    async fn poll(self: &Arc<Self>, claim: &Claim, placed: Placed) -> Result<AcquireReply, BackendError> {
        let confirmed = self.look(claim, &placed).await?;
        self.conclude(claim, placed, confirmed).await
    }
}

impl Locks {
    /// Writes a claim's key.
    ///
    /// The condition on the value of the lease's key refuses requests of an earlier epoch, which a slow network may deliver after their
    /// claim was withdrawn. With `tries`, the key is written only if the lock has no contender. With `released`, its key is
    /// deleted in the same step.
    pub(super) async fn write(
        &self,
        claim: &Claim,
        spot: Spot,
        tries: bool,
        released: Option<&Placed>,
    ) -> Result<Attempt, BackendError> {
        let (id, mode, lease) = (claim.at.id, claim.mode, &spot.lease);
        let folder = self.names.folder(&claim.at.key);
        let (kept, epoch, sent) = (lease.kept(), lease.epoch(), self.now());
        let mut compare = vec![created(&spot.key, 0), is_in_epoch(&lease.key, epoch)];
        let mut then = Vec::new();
        if let Some(released) = released {
            compare.extend(released.unchanged());
            then.push(delete(&released.spot.key));
        }
        if tries {
            let alone = released.map_or(0, |released| released.created);
            compare.push(Compare::prefix(&*folder, Operand::CreateRevision(alone)));
        }
        let look = Op::Range(before(&folder, mode, None));
        then.extend([put(&*spot.key, self.written(claim), Some(lease.id)), look.clone()]);
        let otherwise = vec![read(&*spot.key), read(&*lease.key), look];
        let mut reply = match self.client.txn(compare, then, otherwise).await {
            Ok(reply) => reply,
            Err(error) if is_missing_lease(&error) => {
                lease.end();
                self.table.abandon(id);
                return Ok(Attempt::Again);
            }
            Err(error) => {
                match error.effect() {
                    Effect::Unknown => self.table.unanswered(id, self.now() + lease.ttl),
                    Effect::None => self.table.unplace(id),
                }
                return Err(error);
            }
        };
        let placed = |spot: Spot, created| Placed {
            value: self.value(claim),
            created,
            modified: created,
            granted: None,
            target: None,
            found_at: 0,
            own_lease: ClaimLease::new(kept.at, spot.lease.ttl),
            spot,
        };
        if reply.succeeded {
            let placed = placed(spot, reply.header.revision);
            let is_proved = kept.is_proved_by(&reply.header);
            let confirmed = is_proved.then_some(Confirmed { kept, sent, reply });
            return Ok(Attempt::Placed(Box::new(placed), confirmed));
        }
        if released.is_some() {
            return Ok(Attempt::Again);
        }
        match (reply.first(0), reply.first(1).map(read_epoch)) {
            (Some(own), _) if value_of(own).is_some_and(|value| value.id == id) => {
                let placed = placed(spot, own.create_revision);
                return Ok(Attempt::Placed(Box::new(placed), None));
            }
            // A request in flight may still write the key, once the claim that has it leaves.
            (Some(_), Some(_)) if self.is_in_flight(claim) => return Err(in_use()),
            (None, Some(now)) if now == epoch => {
                let keys = reply.take_last();
                let (standing, _) = self.standing_in(&folder, mode, None, keys, 0).await?;
                return Ok(Attempt::Refused(standing));
            }
            (None, Some(now)) => lease.set_epoch(now),
            // Nothing can be placed there: the claim's key is in use, or that of the lease is missing.
            (_, lease_key) => {
                if lease_key.is_none() {
                    lease.retire();
                }
                self.table.abandon(id);
            }
        }
        Ok(Attempt::Again)
    }

    /// Returns the place that is reserved for a claim, or reserves one.
    pub(super) async fn spot(&self, claim: &Claim) -> Result<Spot, BackendError> {
        let (id, key) = (claim.at.id, &claim.at.key);
        if let Known::Unplaced { spot: Some(spot), .. } = self.table.know(id) {
            if self.leases.refresh(&spot.lease).await? {
                return Ok(spot);
            }
            // A request in flight needs this lease, whose keys end with it.
            self.table.abandon(id);
        }
        let lease = self
            .leases
            .reserve(id.client(), self.ttl(claim.lease), key)
            .await?;
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

    /// Returns whether a request to place a claim was not answered.
    fn is_in_flight(&self, claim: &Claim) -> bool {
        match self.table.know(claim.at.id) {
            Known::Unplaced { is_in_flight, .. } => is_in_flight,
            _ => false,
        }
    }

    /// Records a key that was created, and answers by its state. Removes it if the claim must not wait, or came too late.
    pub(super) async fn settle(
        self: &Arc<Self>,
        claim: &Claim,
        placed: Placed,
        confirmed: Option<Confirmed>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        self.table.place(claim.at.id, placed.clone());
        if self.now() > not_after {
            return self.leave(claim, &placed, Ok(AcquireReply::TooLate)).await;
        }
        let confirmed = match confirmed {
            None => self.look(claim, &placed).await.map_err(placed_but)?,
            confirmed => confirmed,
        };
        self.conclude(claim, placed, confirmed).await
    }

    /// Reads the state of a claim that has its key, which restarts its lease. `None` if the claim has ended.
    async fn look(
        self: &Arc<Self>,
        claim: &Claim,
        placed: &Placed,
    ) -> Result<Option<Confirmed>, BackendError> {
        let (id, folder) = (claim.at.id, self.names.folder(&claim.at.key));
        let look = || {
            let before = before(&folder, placed.value.mode, Some(placed.created));
            vec![read(&*placed.spot.key), Op::Range(before)]
        };
        let is_held = placed.granted.is_some();
        let Some(confirmed) = self.confirmed(&placed.spot.lease, is_held, look).await? else {
            self.lose(id, placed, Loss::Session);
            return Ok(None);
        };
        let is_own = self.is_own(id, placed, confirmed.reply.first(0)).await?;
        Ok(is_own.then_some(confirmed))
    }

    /// Answers by the state of a claim that has its key; `None` if it has ended. Removes the key if the claim must not wait.
    async fn conclude(
        self: &Arc<Self>,
        claim: &Claim,
        placed: Placed,
        confirmed: Option<Confirmed>,
    ) -> Result<AcquireReply, BackendError> {
        let Some(mut confirmed) = confirmed else {
            return Ok(AcquireReply::Ended);
        };
        let (id, mode, revision) = (claim.at.id, placed.value.mode, confirmed.reply.header.revision);
        let folder = self.names.folder(&claim.at.key);
        let (standing, revision) = match placed.granted {
            Some(_) => (Standing::Granted, revision),
            None => {
                let keys = confirmed.reply.take_last();
                let standing = self.standing_in(&folder, mode, Some(&placed), keys, revision);
                standing.await.map_err(placed_but)?
            }
        };
        let target = match standing {
            Standing::Granted => return Ok(self.grant(claim, &placed, &confirmed, revision)),
            Standing::Waits { behind } if claim.fairness == Fairness::Fifo => behind,
            // The first contender is about to find out that it has the wrong kind: this claim was answered before.
            Standing::OtherKind(_) if placed.found_at > 0 => None,
            standing => return self.leave(claim, &placed, self.refused(claim, standing)).await,
        };
        self.watched.set(id, target.clone());
        self.table.update(id, placed.created, |placed| {
            (placed.target, placed.found_at) = (target, revision);
            let restarted = ClaimLease::new(confirmed.kept.at, placed.spot.lease.ttl);
            placed.own_lease.restart(restarted);
        });
        Ok(self.waiting(claim))
    }

    /// Removes the key of a claim, and answers with `reply`.
    async fn leave(
        self: &Arc<Self>,
        claim: &Claim,
        placed: &Placed,
        reply: Result<AcquireReply, BackendError>,
    ) -> Result<AcquireReply, BackendError> {
        if !self.unlock(claim.at.id, placed).await.map_err(placed_but)? {
            return Ok(AcquireReply::Ended);
        }
        self.table.unplace(claim.at.id);
        reply
    }

    /// Answers a claim that holds its lock at this revision.
    fn grant(&self, claim: &Claim, placed: &Placed, confirmed: &Confirmed, revision: i64) -> AcquireReply {
        let mut lease = ClaimLease::new(confirmed.kept.at, placed.spot.lease.ttl);
        let tokens = placed.granted.or_else(|| match self.config.etcdctl_fencing {
            true => TokenRange::new(u64::try_from(revision).ok()?.try_into().ok()?, NonZeroU32::MIN),
            false => tokens(placed.created, placed.value.grants),
        });
        let is_there = self.table.update(claim.at.id, placed.created, |placed| {
            placed.granted = tokens;
            lease = placed.own_lease.restart(lease);
        });
        // The claim may have ended meanwhile.
        if !is_there {
            return AcquireReply::Ended;
        }
        let mut grant = Grant::new(tokens, lease.held_from, lease.length());
        grant.confirmed_from = confirmed.sent;
        grant.evidence = Some(Evidence::new(LockEvidence {
            key: placed.spot.key.clone(),
            create_revision: placed.created,
            client: self.client.clone(),
        }));
        AcquireReply::Granted(grant)
    }

    /// Returns the state of a claim of this mode and the revision of that state, by the keys that [`before`] has read at `revision`.
    /// Reads more if they do not decide. `own` is the claim, if it has a key.
    async fn standing_in(
        &self,
        folder: &str,
        mode: Mode,
        own: Option<&Placed>,
        mut keys: Vec<KeyValue>,
        revision: i64,
    ) -> Result<(Standing, i64), BackendError> {
        let is_earlier = |one: &KeyValue| own.is_none_or(|own| one.create_revision < own.created);
        keys.retain(is_earlier);
        let (is_complete, earlier) = (!reads_one(mode) || keys.is_empty(), contenders(folder, keys));
        let state = standing(mode, &earlier);
        if is_complete || matches!(state, Standing::Waits { .. }) {
            return Ok((state, revision));
        }
        // The key belongs to a lock such as `a/b` in the folder of `a`, or its kind is not that of the first one.
        let mut all = self.client.call(RANGE, RangeRequest::prefix(folder)).await?;
        let is_unchanged = own.is_none_or(|own| {
            let is_own = |one: &KeyValue| one.key == own.spot.key && one.mod_revision == own.modified;
            all.kvs.iter().any(is_own)
        });
        if !is_unchanged {
            // The claim was evicted, and another one may hold the lock. The next poll finds that out: without a revision, the claim's
            // watch wakes it at once.
            return Ok((Standing::Waits { behind: None }, 0));
        }
        all.kvs.retain(is_earlier);
        Ok((standing(mode, &contenders(folder, all.kvs)), all.header.revision))
    }
}

/// Returns whether the contender directly before decides the state of a claim of this mode.
fn reads_one(mode: Mode) -> bool {
    matches!(mode, Mode::Exclusive | Mode::Write)
}

/// Reads the contenders that decide the state of a claim: the one before it, or all. Without `created`, the claim's own key may be the
/// newest.
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

/// The epoch that a lease's key says; 0, which no lease has, for a text that this client does not write.
pub(super) fn read_epoch(lease_key: &KeyValue) -> u64 {
    let text = std::str::from_utf8(&lease_key.value);
    text.ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}
