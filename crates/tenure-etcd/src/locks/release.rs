//! Releasing: removes the key of a claim of this client, or evicts other contenders.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Cause, ClaimId, ClaimRef, Effect, Fairness, Fault, HANDOVER_WINDOW, HolderId,
    Loss, ReleaseReply, ReleaseRequest, ReleaseTarget, Successor, TURN,
};
use tokio::time::sleep;

use super::acquire::{Attempt, read_epoch};
use super::confirm::MAX_REPEATS;
use super::contenders::{Contender, Standing, contenders, standing};
use super::names;
use super::requests::{created, delete, is_in_epoch, put, read, remove, txn};
use super::store::Locks;
use super::table::{Known, Placed, Spot};
use crate::client::RangeRequest;

/// The most contenders whose presence proves that a later one waits. etcd allows 128 conditions.
const MAX_COMPARED: usize = 100;

/// What a release did.
#[derive(Default)]
struct Released {
    freed: Vec<HolderId>,
    /// The reply for a successor that was placed in the same step.
    successor: Option<Result<AcquireReply, BackendError>>,
}

impl Locks {
    pub(super) async fn release(
        self: Arc<Self>,
        request: ReleaseRequest,
    ) -> Result<ReleaseReply, BackendError> {
        if let Some(successor) = request.checked_successor()? {
            successor.check(&self.profile.limits)?;
        }
        let released = match (&request.target, &request.cause) {
            (target, Cause::Evicted { by }) => self.evict(target, by.clone(), request.cooldown).await?,
            (ReleaseTarget::Claim(claim), _) => self.release_own(claim, request.successor.as_ref()).await?,
            (target, _) => self.evict(target, None, request.cooldown).await?,
        };
        let successor = match (request.successor, released.successor) {
            (Some(successor), None) => Some(self.acquire(successor.claim, successor.not_after).await),
            (_, placed) => placed,
        };
        Ok(ReleaseReply::Done {
            freed: released.freed.into_iter().collect(),
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

    /// Releases a claim of this client.
    async fn release_own(
        &self,
        claim: &ClaimRef,
        successor: Option<&Successor>,
    ) -> Result<Released, BackendError> {
        let turn = self.table.turn(claim).await;
        let released = self.release_in_turn(claim.id, successor).await;
        match &released {
            Ok(_) => self.table.end(claim.id, self.now(), None),
            Err(error) if error.effect() == Effect::None => self.table.cancel_release(claim.id),
            Err(_) => {}
        }
        self.table.end_turn(claim.id, turn);
        released
    }

    async fn release_in_turn(
        &self,
        id: ClaimId,
        successor: Option<&Successor>,
    ) -> Result<Released, BackendError> {
        let mut released = Released::default();
        let was_placed = match self.table.begin_release(id) {
            (_, Some(in_flight)) => self.withdraw(&in_flight).await?,
            (Some(placed), None) => {
                if let Some(successor) = successor {
                    released.successor = self.hand_over(&placed, successor).await?;
                }
                released.successor.is_some() || self.unlock(id, &placed).await?
            }
            (None, None) => false,
        };
        released.freed.extend(was_placed.then_some(HolderId::Claim(id)));
        Ok(released)
    }

    /// Removes a claim's key. Returns false if the claim was lost before.
    async fn unlock(&self, id: ClaimId, placed: &Placed) -> Result<bool, BackendError> {
        let key = &*placed.spot.key;
        let (then, otherwise) = (vec![delete(key)], vec![read(key)]);
        if txn(&self.client, placed.unchanged(), then, otherwise)
            .await?
            .succeeded
        {
            return Ok(true);
        }
        let loss = self.loss(id, placed).await?;
        if !matches!(loss, Loss::Evicted { .. }) && self.remove(placed).await? {
            return Ok(true);
        }
        self.lose(id, placed, loss);
        Ok(false)
    }

    /// Removes the key of a claim, and begins a new epoch of its lease, in which a request for the claim that was not answered
    /// has no effect. Returns whether the key was there.
    ///
    /// A repetition may arrive late, when another claim has the key: then it finds a later epoch, and deletes nothing.
    pub(super) async fn withdraw(&self, spot: &Spot) -> Result<bool, BackendError> {
        let (lease, key, bell) = (&spot.lease, &*spot.key, &*spot.lease.bell);
        let epoch = lease.epoch();
        let then = vec![delete(key), put(bell, (epoch + 1).to_string(), None)];
        let otherwise = vec![read(bell), read(key)];
        let reply = txn(&self.client, vec![is_in_epoch(bell, epoch)], then, otherwise).await?;
        if reply.succeeded {
            lease.set_epoch(epoch + 1);
            return Ok(reply.deleted > 0);
        }
        // Another withdrawal has begun a new epoch, or the bell is gone.
        lease.set_epoch(reply.first(0).map_or(epoch, read_epoch));
        match reply.first(1) {
            Some(own) => remove(&self.client, key, own.create_revision).await,
            None => Ok(false),
        }
    }

    /// Removes a claim's key and writes that of its successor in one step. `None` if that had no effect.
    async fn hand_over(
        &self,
        placed: &Placed,
        successor: &Successor,
    ) -> Result<Option<Result<AcquireReply, BackendError>>, BackendError> {
        let (claim, not_after) = (&successor.claim, successor.not_after);
        let turn = self.table.turn(&claim.at).await;
        let is_unplaced = matches!(self.table.know(claim.at.id), Known::Unplaced(_));
        let mut reply = Ok(None);
        if is_unplaced
            && self.now() <= not_after
            && let Ok(spot) = self.spot(claim).await
        {
            let tries = claim.fairness == Fairness::Unfair;
            reply = match self.place(claim, &spot, tries, Some(placed)).await {
                Ok(Attempt::Placed(arrived)) => Ok(Some(self.settle(claim, spot, arrived, not_after).await)),
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            };
            if matches!(reply, Ok(None)) {
                self.table.unplace(claim.at.id);
            }
        }
        self.table.end_turn(claim.at.id, turn);
        reply
    }

    /// Evicts one contender of a lock, or all that hold it.
    async fn evict(
        &self,
        target: &ReleaseTarget,
        by: Option<Arc<str>>,
        cooldown: Duration,
    ) -> Result<Released, BackendError> {
        let folder = self.names.folder(target.key());
        // The last contender that held the lock at first: those that follow when it has left are not evicted.
        let mut last_holder = None;
        for _ in 0..MAX_REPEATS {
            let all = self.client.range(RangeRequest::prefix(&*folder)).await?.kvs;
            let all = contenders(&folder, all);
            let waits = |at: usize| standing(all[at].mode(), &all[..at]) != Standing::Granted;
            let last_holder = *last_holder.get_or_insert_with(|| {
                let holders = (0..all.len()).filter(|at| !waits(*at));
                holders.map(|at| all[at].created).max()
            });
            let is_target = |one: &Contender, is_waiting: bool| match target {
                ReleaseTarget::Claim(claim) => one.id() == HolderId::Claim(claim.id),
                ReleaseTarget::Foreign { id, .. } => one.id() == HolderId::Foreign(id.clone()),
                ReleaseTarget::All(_) => !is_waiting && Some(one.created) <= last_holder,
            };
            let (mut released, mut marked) = (Released::default(), Vec::new());
            let mut has_changed = false;
            for (at, one) in all.iter().enumerate() {
                let is_waiting = waits(at);
                if !is_target(one, is_waiting) {
                    continue;
                }
                match self
                    .mark(one, by.clone(), is_waiting.then_some(&all[..at]))
                    .await?
                {
                    true if is_waiting || one.value.is_none() => released.freed.push(one.id()),
                    true => marked.push(one),
                    false => has_changed = true,
                }
            }
            if !marked.is_empty() {
                // A claim at the head of the queue is marked like a holder: only its client knows whether it was granted.
                sleep(cooldown.min(HANDOVER_WINDOW)).await;
            }
            for one in marked {
                // If the holder has removed it first, this eviction was the reason.
                remove(&self.client, &one.key, one.created).await?;
                released.freed.push(one.id());
            }
            if !has_changed || !released.freed.is_empty() {
                return Ok(released);
            }
        }
        let message = "other clients change this lock all the time: evict again";
        Err(BackendError::new(Fault::Unavailable, Effect::None, message))
    }

    /// Marks a holder as evicted, so that no confirmation of its client succeeds from now on, and writes it a note. Removes a
    /// foreign contender at once, and one that waits behind others. Returns false if the contender, or one of those, has left.
    async fn mark(
        &self,
        one: &Contender,
        by: Option<Arc<str>>,
        waits_behind: Option<&[Contender]>,
    ) -> Result<bool, BackendError> {
        let mut compare = vec![created(&one.key, one.created)];
        let others = waits_behind.unwrap_or_default().iter().take(MAX_COMPARED);
        compare.extend(others.map(|other| created(&other.key, other.created)));
        let then = match &one.value {
            None => vec![delete(&one.key)],
            Some(value) => {
                let note = names::note(value.id.client(), one.lease, value.id.number());
                let mark = value.clone().evicted(by).write();
                let end = match waits_behind {
                    Some(_) => delete(&one.key),
                    None => put(&*one.key, mark.clone(), None),
                };
                vec![end, put(note, mark, Some(one.lease))]
            }
        };
        let reply = txn(&self.client, compare, then, vec![read(&*one.key)]).await?;
        Ok(reply.succeeded)
    }
}
