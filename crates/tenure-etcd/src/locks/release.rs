//! Releasing: removes the key of a claim of this client, or evicts other contenders.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Cause, ClaimId, ClaimRef, Effect, Fairness, Fault, HANDOVER_WINDOW, HolderId,
    LockKey, Loss, ReleaseReply, ReleaseRequest, ReleaseTarget, Successor, TURN,
};
use tokio::time::sleep;

use super::acquire::{Attempt, created, ranges, read_epoch, unchanged};
use super::contenders::{Contender, Standing, contenders, standing};
use super::names;
use super::store::{Locks, delete};
use super::table::{Known, Placed, Spot};
use crate::client::{Compare, Op, OpReply, Operand, PutRequest, RangeRequest, Relation, TxnRequest};

/// How often a step is repeated because other clients changed the lock meanwhile.
const MAX_REPEATS: u32 = 8;

impl Locks {
    pub(super) async fn release(
        self: Arc<Self>,
        request: ReleaseRequest,
    ) -> Result<ReleaseReply, BackendError> {
        if let Some(successor) = request.checked_successor()? {
            successor.check(&self.profile.limits)?;
        }
        let by = match &request.cause {
            Cause::Evicted { by } => by.clone(),
            _ => None,
        };
        let (key, is_eviction) = (
            request.target.key(),
            matches!(request.cause, Cause::Evicted { .. }),
        );
        let mut handed_over = None;
        let freed = match &request.target {
            ReleaseTarget::Claim(claim) if !is_eviction => {
                let (was_placed, reply) = self.release_own(claim, request.successor.as_ref()).await?;
                handed_over = reply;
                was_placed
                    .then_some(HolderId::Claim(claim.id))
                    .into_iter()
                    .collect()
            }
            ReleaseTarget::Claim(claim) => {
                self.evict(key, Some(&HolderId::Claim(claim.id)), by, request.cooldown)
                    .await?
            }
            ReleaseTarget::Foreign { id, .. } => {
                self.evict(key, Some(&HolderId::Foreign(id.clone())), by, request.cooldown)
                    .await?
            }
            ReleaseTarget::All(_) => self.evict(key, None, by, request.cooldown).await?,
        };
        let successor = match (request.successor, handed_over) {
            (None, _) => None,
            (Some(_), Some(reply)) => Some(reply),
            (Some(successor), None) => Some(self.acquire(successor.claim, successor.not_after).await),
        };
        Ok(ReleaseReply::Done {
            freed: freed.into_iter().collect(),
            others: None,
            successor: successor.map(|reply| match reply {
                // The poll after a turn returns the error.
                Err(_) | Ok(AcquireReply::Waiting { .. }) => AcquireReply::Waiting {
                    ahead: None,
                    poll_after: TURN,
                },
                Ok(reply) => reply,
            }),
        })
    }

    /// Releases a claim of this client. Returns whether it had a key, and the reply for the successor if that was placed in the
    /// same step.
    async fn release_own(
        &self,
        claim: &ClaimRef,
        successor: Option<&Successor>,
    ) -> Result<(bool, Option<Result<AcquireReply, BackendError>>), BackendError> {
        let id = claim.id;
        let turn = self.table.turn(claim).await;
        let known = self.table.know(id);
        let released = self.release_in_turn(id, successor).await;
        match &released {
            Ok((_, loss, _)) if !matches!(known, Known::Ended) || loss.is_some() => {
                let loss = loss.clone().map(|(loss, placed)| (loss, placed.spot.lease.ttl));
                self.table.end(id, self.now(), loss);
            }
            Err(error) if error.effect() == Effect::None => self.table.cancel_release(id),
            _ => {}
        }
        self.table.end_turn(id, turn);
        released.map(|(was_placed, _, reply)| (was_placed, reply))
    }

    async fn release_in_turn(
        &self,
        id: ClaimId,
        successor: Option<&Successor>,
    ) -> Result<
        (
            bool,
            Option<(Loss, Placed)>,
            Option<Result<AcquireReply, BackendError>>,
        ),
        BackendError,
    > {
        let to_release = self.table.begin_release(id);
        if let Some(spot) = to_release.in_flight {
            return Ok((self.withdraw(&spot).await?, None, None));
        }
        let Some(placed) = to_release.placed else {
            return Ok((false, None, None));
        };
        if let Some(successor) = successor
            && let Some(reply) = self.hand_over(&placed, successor).await?
        {
            return Ok((true, None, Some(reply)));
        }
        let key = &placed.spot.key;
        let look = Op::Range(RangeRequest::key(&**key));
        let txn = TxnRequest::new(unchanged(&placed).into(), vec![delete(key)], vec![look]);
        let reply = self.client.txn(txn).await?;
        if reply.succeeded {
            return Ok((true, None, None));
        }
        let loss = self.loss(id, &placed).await?;
        let is_evicted = matches!(loss, Loss::Evicted { .. });
        let was_placed = !is_evicted && self.remove(key, placed.created).await?;
        Ok((was_placed, (!was_placed).then_some((loss, placed)), None))
    }

    /// Removes the key of a request that was not answered, and begins a new epoch of its lease, in which that request has no
    /// effect.
    async fn withdraw(&self, spot: &Spot) -> Result<bool, BackendError> {
        let lease = &spot.lease;
        let bell = lease.bell.as_bytes();
        let mut was_placed = false;
        for _ in 0..MAX_REPEATS {
            let epoch = lease.epoch();
            let same = Compare::new(bell, Relation::Equal, Operand::Value(epoch.to_string().into()));
            let next = PutRequest {
                key: bell.into(),
                value: (epoch + 1).to_string().into(),
                ignore_lease: true,
                ..PutRequest::default()
            };
            let then = vec![delete(&spot.key), Op::Put(next)];
            let otherwise = vec![delete(&spot.key), Op::Range(RangeRequest::key(bell))];
            let reply = self
                .client
                .txn(TxnRequest::new(vec![same], then, otherwise))
                .await?;
            let removed = reply.responses.iter().any(|response| {
                matches!(&response.reply, Some(OpReply::DeleteRange(removed)) if removed.deleted > 0)
            });
            was_placed |= removed;
            if reply.succeeded {
                lease.set_epoch(epoch + 1);
                return Ok(was_placed);
            }
            match ranges(reply).into_iter().flatten().next() {
                Some(bell) => lease.set_epoch(read_epoch(&bell).unwrap_or(epoch)),
                // Without a bell no request has an effect.
                None => return Ok(was_placed),
            }
        }
        let message = "this client withdraws too many locks at once: the release is repeated";
        Err(BackendError::new(Fault::Unavailable, Effect::Unknown, message))
    }

    /// Removes a claim's key and writes that of its successor in one step. `None` if that had no effect.
    async fn hand_over(
        &self,
        placed: &Placed,
        successor: &Successor,
    ) -> Result<Option<Result<AcquireReply, BackendError>>, BackendError> {
        let claim = &successor.claim;
        let turn = self.table.turn(&claim.at).await;
        let is_unplaced = matches!(self.table.know(claim.at.id), Known::Unplaced(_));
        let mut reply = Ok(None);
        if is_unplaced
            && self.now() <= successor.not_after
            && let Ok(spot) = self.spot(claim).await
        {
            let tries = claim.fairness == Fairness::Unfair;
            reply = match self.place(claim, &spot, tries, Some(placed)).await {
                Ok(Attempt::Placed(arrived)) => {
                    Ok(Some(self.settle(claim, spot, arrived, successor.not_after).await))
                }
                Ok(_) => {
                    self.table.unplace(claim.at.id);
                    Ok(None)
                }
                Err(error) => Err(error),
            };
        }
        self.table.end_turn(claim.at.id, turn);
        reply
    }

    /// Evicts one contender of a lock, or all that hold it. Returns those that were removed.
    async fn evict(
        &self,
        key: &LockKey,
        target: Option<&HolderId>,
        by: Option<Arc<str>>,
        cooldown: Duration,
    ) -> Result<Vec<HolderId>, BackendError> {
        let folder = self.names.folder(key);
        for _ in 0..MAX_REPEATS {
            let read = self.client.range(RangeRequest::prefix(&*folder)).await?;
            let all = contenders(&folder, read.kvs);
            let mut marked = Vec::new();
            let mut freed = Vec::new();
            let mut has_changed = false;
            for (at, one) in all.iter().enumerate() {
                let standing = standing(one.mode(), &all[..at]);
                let is_target = match target {
                    Some(target) => one.id() == *target,
                    None => standing == Standing::Granted,
                };
                if !is_target {
                    continue;
                }
                let is_waiting = standing != Standing::Granted;
                match self.mark(one, by.clone(), &all[..at], is_waiting).await? {
                    true if is_waiting || one.value.is_none() => freed.push(one.id()),
                    true => marked.push(one),
                    false => has_changed = true,
                }
            }
            if !marked.is_empty() {
                // A claim at the head of the queue is marked like a holder: only its client knows whether it was granted.
                sleep(cooldown.min(HANDOVER_WINDOW)).await;
            }
            for one in marked {
                self.remove(&one.key, one.created).await?;
                // If the holder has removed it first, this eviction was the reason.
                freed.push(one.id());
            }
            if !has_changed || !freed.is_empty() {
                return Ok(freed);
            }
        }
        let message = "other clients change this lock all the time: evict again";
        Err(BackendError::new(Fault::Unavailable, Effect::None, message))
    }

    /// Marks a holder as evicted, so that no confirmation of its client succeeds from now on, and writes it a note. Removes a
    /// waiter, and a foreign contender, at once. Returns false if the contender has left, or if it may hold the lock by now.
    async fn mark(
        &self,
        one: &Contender,
        by: Option<Arc<str>>,
        earlier: &[Contender],
        is_waiting: bool,
    ) -> Result<bool, BackendError> {
        let mut compare = vec![created(&one.key, one.created)];
        if is_waiting {
            compare.extend(
                earlier
                    .iter()
                    .take(MAX_COMPARED)
                    .map(|other| created(&other.key, other.created)),
            );
        }
        let mut then = Vec::new();
        match &one.value {
            None => then.push(delete(&one.key)),
            Some(value) => {
                let mark = value.clone().evicted(by).write();
                then.push(match is_waiting {
                    true => delete(&one.key),
                    false => Op::Put(PutRequest {
                        key: one.key.clone(),
                        value: mark.clone(),
                        ignore_lease: true,
                        ..PutRequest::default()
                    }),
                });
                then.push(Op::Put(PutRequest {
                    key: names::note(value.id.client(), one.lease, value.id.number()).into(),
                    value: mark,
                    lease: one.lease,
                    ..PutRequest::default()
                }));
            }
        }
        let look = Op::Range(RangeRequest::key(&*one.key));
        let reply = self
            .client
            .txn(TxnRequest::new(compare, then, vec![look]))
            .await?;
        Ok(reply.succeeded)
    }
}

/// The most contenders whose presence proves that a later one waits. etcd allows 128 conditions.
const MAX_COMPARED: usize = 100;
