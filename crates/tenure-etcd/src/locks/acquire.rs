//! Acquiring: places the key of a claim, or looks who is before it.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, Effect, Evidence, Fairness, Fault, Grant, HANDOVER_WINDOW,
    Instant, Loss, Mode, TokenRange,
};

use tokio::time::sleep;

use super::contenders::{Contender, Standing, contenders, standing};
use super::leases::{Kept, Lease};
use super::names;
use super::profile::{EXPIRY_SLACK, MAX_GRANTS};
use super::store::{Locks, delete, remove};
use super::table::{Known, Placed, Spot};
use super::targets::Target;
use super::value::Value;
use crate::client::{
    Compare, KeyValue, Op, OpReply, Operand, PutRequest, RangeRequest, Relation, SortOrder, SortTarget,
    TxnRequest, TxnResponse, is_missing_lease,
};

/// How often a request is repeated that had no effect: its lease had ended, or its epoch, or a leader was elected.
const MAX_REPEATS: u32 = 8;

/// The longest pause between two polls of a claim that waits. etcd reports the end of each key, but not when it will come, so
/// the pause is as long as the end of a lease may be late.
const MAX_POLL_AFTER: Duration = EXPIRY_SLACK;

/// Proof of a grant, for a transaction of your own: compare the key's create revision in it, and it has no effect after the
/// claim has ended.
///
/// # Examples
/// ```
/// use tenure_etcd::LockEvidence;
///
/// let evidence = LockEvidence { key: b"locks/order:42/1a2b".to_vec(), create_revision: 7 };
/// assert_eq!(evidence.create_revision, 7);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEvidence {
    /// The claim's key.
    pub key: Vec<u8>,
    /// The revision that created the key.
    pub create_revision: i64,
}

/// The outcome of an attempt to place a claim.
pub(super) enum Attempt {
    /// It has its key now.
    Placed(Arrived),
    /// It had its key already, from an earlier request.
    Found(KeyValue),
    /// Nothing was written: the state that the claim would have had.
    Refused(Standing),
    /// The place cannot be used.
    Unusable { is_in_use: bool },
}

/// A claim whose key was created.
pub(super) struct Arrived {
    pub(super) revision: i64,
    pub(super) kept: Kept,
    pub(super) is_proved: bool,
    pub(super) standing: Standing,
}

impl Locks {
    pub(super) async fn acquire(
        self: Arc<Self>,
        claim: Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        claim.check(&self.profile.limits)?;
        let turn = self.table.turn(&claim.at).await;
        let reply = self.acquire_in_turn(&claim, not_after).await;
        self.table.end_turn(claim.at.id, turn);
        self.ends.notify_one();
        reply
    }

    async fn acquire_in_turn(&self, claim: &Claim, not_after: Instant) -> Result<AcquireReply, BackendError> {
        let id = claim.at.id;
        match self.table.know(id) {
            Known::Ended => return Ok(AcquireReply::Ended),
            Known::Placed(placed) => return self.poll(claim, placed).await,
            Known::Unplaced(_) if self.now() > not_after => return Ok(AcquireReply::TooLate),
            Known::Unplaced(_) => {}
        }
        let mut tries = claim.fairness == Fairness::Unfair;
        for _ in 0..MAX_REPEATS {
            let spot = self.spot(claim).await?;
            match self.place(claim, &spot, tries, None).await? {
                Attempt::Placed(arrived) => return self.settle(claim, spot, arrived, not_after).await,
                Attempt::Found(kv) => {
                    let placed = self.adopt(claim, spot, &kv);
                    return self.poll(claim, placed).await;
                }
                Attempt::Refused(Standing::Granted) => tries = false,
                Attempt::Refused(standing) => {
                    self.table.unplace(id);
                    return self.refuse(claim, standing);
                }
                Attempt::Unusable { is_in_use: true } => self.table.forfeit(id),
                Attempt::Unusable { is_in_use: false } => self.table.abandon(id),
            }
        }
        Err(unsettled())
    }

    /// The length of a claim's lease: etcd counts whole seconds.
    pub(super) fn ttl(&self, lease: Duration) -> Duration {
        let lease = self.profile.limits.lease(lease);
        Duration::from_secs(lease.as_secs() + u64::from(lease.subsec_nanos() > 0))
    }

    /// Returns the place that is reserved for a claim, or reserves one.
    pub(super) async fn spot(&self, claim: &Claim) -> Result<Spot, BackendError> {
        let (id, key) = (claim.at.id, &claim.at.key);
        if let Known::Unplaced(Some(spot)) = self.table.know(id) {
            if !spot.lease.is_fresh(self.now()) {
                self.leases.keep(std::slice::from_ref(&spot.lease)).await?;
            }
            return Ok(spot);
        }
        let lease = self
            .leases
            .reserve(id.client(), self.ttl(claim.lease), key)
            .await?;
        let spot = Spot {
            key: format!("{}{}", self.names.folder(key), names::hex(lease.id)).into(),
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
        let grants = self.profile.limits.grants(claim.grants);
        let put = PutRequest {
            key: spot.key.clone(),
            value: Value::of(claim, grants).write(),
            lease: lease.id,
            ..PutRequest::default()
        };
        for _ in 0..MAX_REPEATS {
            let (kept, epoch) = (lease.kept(), lease.epoch());
            let mut compare = vec![
                created(&spot.key, 0),
                Compare::new(
                    &*lease.bell,
                    Relation::Equal,
                    Operand::Value(epoch.to_string().into()),
                ),
            ];
            let mut then = Vec::new();
            if let Some(released) = released {
                compare.extend(unchanged(released));
                then.push(delete(&released.spot.key));
            }
            if tries {
                let alone = released.map_or(0, |released| released.created);
                compare.push(created(folder.as_bytes(), alone).prefix());
            }
            then.extend([Op::Put(put.clone()), Op::Range(before(&folder, mode, None))]);
            let otherwise = vec![
                Op::Range(RangeRequest::key(&*spot.key)),
                Op::Range(RangeRequest::key(&*lease.bell)),
                Op::Range(first(&folder, mode)),
            ];
            let reply = match self.client.txn(TxnRequest::new(compare, then, otherwise)).await {
                Ok(reply) => reply,
                Err(error) if is_missing_lease(&error) => {
                    lease.end();
                    return Ok(Attempt::Unusable { is_in_use: false });
                }
                Err(error) => {
                    match error.effect() {
                        Effect::Unknown => self.table.unanswered(id),
                        Effect::None => self.table.unplace(id),
                    }
                    return Err(error);
                }
            };
            let revision = reply.header.map_or(0, |header| header.revision);
            let is_proved = kept.is_proved_by(reply.header.as_ref());
            let succeeded = reply.succeeded;
            let mut ranges = ranges(reply);
            let last = ranges.pop().unwrap_or_default();
            if succeeded {
                let standing = self.standing_before(&folder, mode, revision, last).await;
                let standing = standing.unwrap_or(Standing::Waits { behind: None });
                return Ok(Attempt::Placed(Arrived {
                    revision,
                    kept,
                    is_proved,
                    standing,
                }));
            }
            if released.is_some() {
                return Ok(Attempt::Refused(Standing::Waits { behind: None }));
            }
            let [own, bell] = [0, 1].map(|at| ranges.get(at).and_then(|kvs| kvs.first()));
            match (own, bell) {
                (Some(own), _) if Value::read(&own.value).is_some_and(|value| value.id == id) => {
                    return Ok(Attempt::Found(own.clone()));
                }
                (Some(_), _) => return Ok(Attempt::Unusable { is_in_use: true }),
                (None, None) => {
                    lease.retire();
                    return Ok(Attempt::Unusable { is_in_use: false });
                }
                (None, Some(bell)) => match read_epoch(bell) {
                    Some(now) if now != epoch => lease.set_epoch(now),
                    _ => {
                        let standing = self.standing_before(&folder, mode, i64::MAX, last).await?;
                        return Ok(Attempt::Refused(standing));
                    }
                },
            }
        }
        Err(unsettled())
    }

    /// Records a key that was created, and answers by its state. Removes it if the claim must not wait, or came too late.
    pub(super) async fn settle(
        &self,
        claim: &Claim,
        spot: Spot,
        arrived: Arrived,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let id = claim.at.id;
        let placed = Placed {
            value: Value::of(claim, self.profile.limits.grants(claim.grants)),
            created: arrived.revision,
            modified: arrived.revision,
            granted: None,
            ends: arrived.kept.at + spot.lease.ttl,
            spot,
        };
        self.table.place(id, placed.clone());
        let is_late = self.now() > not_after;
        let must_leave = match arrived.standing {
            Standing::Granted => is_late,
            Standing::Waits { .. } => is_late || claim.fairness == Fairness::Unfair,
            Standing::OtherKind(_) => true,
        };
        if must_leave {
            self.remove(&placed.spot.key, placed.created).await?;
            self.table.unplace(id);
            return match is_late {
                true => Ok(AcquireReply::TooLate),
                false => self.refuse(claim, arrived.standing),
            };
        }
        if !arrived.is_proved {
            return self.poll(claim, placed).await;
        }
        self.answer(claim, &placed, arrived.kept, arrived.standing, arrived.revision)
    }

    /// Records a key that an unanswered request has created.
    fn adopt(&self, claim: &Claim, spot: Spot, kv: &KeyValue) -> Placed {
        let placed = Placed {
            value: Value::of(claim, self.profile.limits.grants(claim.grants)),
            created: kv.create_revision,
            modified: kv.mod_revision,
            granted: None,
            ends: spot.lease.kept().at + spot.lease.ttl,
            spot,
        };
        self.table.place(claim.at.id, placed.clone());
        placed
    }

    /// Asks for the state of a claim that has its key, which restarts its lease.
    async fn poll(&self, claim: &Claim, placed: Placed) -> Result<AcquireReply, BackendError> {
        let (id, key) = (claim.at.id, &placed.spot.key);
        let folder = self.names.folder(&claim.at.key);
        let txn = || {
            let own = RangeRequest::key(&**key);
            let before = before(&folder, placed.value.mode, Some(placed.created));
            TxnRequest::new(Vec::new(), vec![Op::Range(own), Op::Range(before)], Vec::new())
        };
        let Some((kept, reply)) = self
            .confirmed(&placed.spot.lease, placed.granted.is_some(), txn)
            .await?
        else {
            self.lose(id, &placed, Loss::Session);
            return Ok(AcquireReply::Ended);
        };
        let revision = reply.header.map_or(0, |header| header.revision);
        let mut ranges = ranges(reply);
        let earlier = ranges.pop().unwrap_or_default();
        let own = ranges.pop().and_then(|own| own.into_iter().next());
        if !self.is_own(id, &placed, own).await? {
            return Ok(AcquireReply::Ended);
        }
        let standing = match placed.granted {
            Some(_) => Standing::Granted,
            None => {
                self.standing_before(&folder, placed.value.mode, placed.created, earlier)
                    .await?
            }
        };
        let ends = kept.at + placed.spot.lease.ttl;
        if !self.table.update(id, placed.created, |placed| placed.ends = ends) {
            return Ok(AcquireReply::Ended);
        }
        self.answer(claim, &placed, kept, standing, revision)
    }

    /// Answers by the state of a claim that has its key, and whose lease counts from `kept` on.
    fn answer(
        &self,
        claim: &Claim,
        placed: &Placed,
        kept: Kept,
        standing: Standing,
        revision: i64,
    ) -> Result<AcquireReply, BackendError> {
        let behind = match standing {
            Standing::Granted => {
                let tokens = placed
                    .granted
                    .or_else(|| tokens(placed.created, self.profile.limits.grants(claim.grants)));
                let is_placed = self
                    .table
                    .update(claim.at.id, placed.created, |placed| placed.granted = tokens);
                if !is_placed {
                    return Ok(AcquireReply::Ended);
                }
                let mut grant = Grant::new(tokens, kept.at, placed.spot.lease.ttl);
                grant.evidence = Some(Evidence::new(LockEvidence {
                    key: placed.spot.key.clone(),
                    create_revision: placed.created,
                }));
                return Ok(AcquireReply::Granted(grant));
            }
            Standing::Waits { behind } => behind,
            // The claim is before us, and about to leave.
            Standing::OtherKind(_) => None,
        };
        let target = behind.map_or(Target::Folder, Target::Key);
        self.watched.set(claim.at.id, target, revision);
        Ok(self.waiting(claim))
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

    /// Sends a transaction that only reads, after a keep-alive of the lease, and returns both if they prove that the lease was
    /// prolonged. `None` if the lease has ended. With `restart`, the keep-alive is sent even if the last one is recent.
    pub(super) async fn confirmed(
        &self,
        lease: &Arc<Lease>,
        mut restart: bool,
        txn: impl Fn() -> TxnRequest,
    ) -> Result<Option<(Kept, TxnResponse)>, BackendError> {
        for _ in 0..MAX_REPEATS {
            if restart || !lease.is_fresh(self.now()) {
                self.leases.keep(std::slice::from_ref(lease)).await?;
            }
            if !lease.is_alive() {
                return Ok(None);
            }
            let kept = lease.kept();
            let reply = self.client.txn(txn()).await?;
            if kept.is_proved_by(reply.header.as_ref()) {
                return Ok(Some((kept, reply)));
            }
            restart = true;
        }
        Err(unsettled())
    }

    /// Returns whether a claim's key is as this client wrote it last. Otherwise the claim is lost, and its end is recorded.
    pub(super) async fn is_own(
        &self,
        id: ClaimId,
        placed: &Placed,
        own: Option<KeyValue>,
    ) -> Result<bool, BackendError> {
        let own = own.filter(|own| own.create_revision == placed.created);
        if own
            .as_ref()
            .is_some_and(|own| own.mod_revision == placed.modified)
        {
            return Ok(true);
        }
        if own.is_some() {
            let now = self
                .client
                .range(RangeRequest::key(&*placed.spot.key))
                .await?
                .kvs
                .pop();
            let now = now.filter(|now| now.create_revision == placed.created);
            let value = now.as_ref().and_then(|now| Value::read(&now.value));
            // A downgrade by this client has changed the key meanwhile.
            if let (Some(now), Some(value)) = (now, value)
                && value.id == id
                && !value.is_evicted
            {
                let modified = now.mod_revision;
                return Ok(self.table.update(id, placed.created, |placed| {
                    (placed.modified, placed.value) = (modified, value);
                }));
            }
        }
        let loss = self.loss(id, placed).await?;
        self.lose(id, placed, loss);
        Ok(false)
    }

    /// Finds out why a claim was lost: its key or its note names the evictor.
    pub(super) async fn loss(&self, id: ClaimId, placed: &Placed) -> Result<Loss, BackendError> {
        let note = names::note(id.client(), placed.spot.lease.id, id.number());
        let reads = [RangeRequest::key(&*placed.spot.key), RangeRequest::key(note)].map(Op::Range);
        let found = self
            .client
            .txn(TxnRequest::new(Vec::new(), reads.into(), Vec::new()))
            .await?;
        for kv in ranges(found).into_iter().flatten() {
            let mark = Value::read(&kv.value).filter(|mark| mark.is_evicted && mark.id == id);
            let Some(mark) = mark else { continue };
            if kv.create_revision == placed.created {
                self.remove_after_cooldown(placed);
            }
            return Ok(Loss::Evicted { by: mark.evictor() });
        }
        Ok(if placed.ends <= self.now() {
            Loss::Expired
        } else {
            Loss::Missing
        })
    }

    /// Removes the key of an evicted claim, because its evictor may have died before it could.
    fn remove_after_cooldown(&self, placed: &Placed) {
        let (client, key, created) = (self.client.clone(), placed.spot.key.clone(), placed.created);
        tokio::spawn(async move {
            sleep(HANDOVER_WINDOW).await;
            // If it fails, the key ends with its lease.
            let _ = remove(&client, &key, created).await;
        });
    }

    /// Records the loss of a claim.
    pub(super) fn lose(&self, id: ClaimId, placed: &Placed, loss: Loss) {
        let remembered = placed.spot.lease.ttl;
        self.table.end(id, self.now(), Some((loss, remembered)));
    }

    /// Returns the state of a claim of this mode whose key was created at `created`, by the keys that [`before`] has read.
    /// Reads more if they do not decide.
    async fn standing_before(
        &self,
        folder: &str,
        mode: Mode,
        created: i64,
        keys: Vec<KeyValue>,
    ) -> Result<Standing, BackendError> {
        let is_earlier = |one: &KeyValue| one.create_revision < created;
        let keys: Vec<KeyValue> = keys.into_iter().filter(is_earlier).collect();
        if reads_one(mode) && !keys.is_empty() {
            let last = contenders(folder, keys.clone());
            if let Standing::Waits { behind } = standing(mode, &last)
                && !last.is_empty()
            {
                return Ok(Standing::Waits { behind });
            }
            // The key belongs to a lock such as `a/b` in the folder of `a`, or its kind is not that of the first one.
            let all = self.client.range(RangeRequest::prefix(folder)).await?.kvs;
            let all = all.into_iter().filter(is_earlier).collect();
            return Ok(standing(mode, &contenders(folder, all)));
        }
        let earlier: Vec<Contender> = contenders(folder, keys);
        Ok(standing(mode, &earlier))
    }
}

/// Returns whether the contender directly before decides the state of a claim of this mode.
fn reads_one(mode: Mode) -> bool {
    matches!(mode, Mode::Exclusive | Mode::Write)
}

/// Reads the contenders that decide the state of a claim: the one before it, or all. Without `created`, the claim's own key is
/// the newest.
fn before(folder: &str, mode: Mode, created: Option<i64>) -> RangeRequest {
    let range = RangeRequest {
        max_create_revision: created.map_or(0, |created| created - 1),
        ..RangeRequest::prefix(folder)
    };
    match reads_one(mode) {
        true => RangeRequest {
            limit: 1 + i64::from(created.is_none()),
            ..range.sorted(SortTarget::Create, SortOrder::Descend)
        },
        false => range,
    }
}

/// Reads the contenders that decide the state of a claim without a key: the first, or all.
fn first(folder: &str, mode: Mode) -> RangeRequest {
    let range = RangeRequest::prefix(folder);
    match reads_one(mode) {
        true => RangeRequest {
            limit: 1,
            ..range.sorted(SortTarget::Create, SortOrder::Ascend)
        },
        false => range,
    }
}

/// The condition that a key was created at this revision, or is missing for 0.
pub(super) fn created(key: &[u8], revision: i64) -> Compare {
    Compare::new(key, Relation::Equal, Operand::CreateRevision(revision))
}

/// The conditions that a claim's key is as this client wrote it last.
pub(super) fn unchanged(placed: &Placed) -> [Compare; 2] {
    let key = &*placed.spot.key;
    let modified = Operand::ModRevision(placed.modified);
    [
        created(key, placed.created),
        Compare::new(key, Relation::Equal, modified),
    ]
}

/// The keys that each read of a transaction has found.
pub(super) fn ranges(reply: TxnResponse) -> Vec<Vec<KeyValue>> {
    let ranges = reply
        .responses
        .into_iter()
        .filter_map(|response| match response.reply {
            Some(OpReply::Range(range)) => Some(range.kvs),
            _ => None,
        });
    ranges.collect()
}

pub(super) fn read_epoch(bell: &KeyValue) -> Option<u64> {
    std::str::from_utf8(&bell.value).ok()?.parse().ok()
}

/// The tokens of a claim.
pub(super) fn tokens(created: i64, grants: std::num::NonZeroU32) -> Option<TokenRange> {
    let first = u64::try_from(created)
        .ok()?
        .checked_mul(MAX_GRANTS.get().into())?;
    TokenRange::new(first.try_into().ok()?, grants)
}

/// Error for a request that was repeated too often. None of them had an effect.
fn unsettled() -> BackendError {
    let message = "etcd has elected leaders, or ended leases, again and again during this request: see whether its members run";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}
