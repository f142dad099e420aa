//! What the shared part asks of etcd: to end claims, and to evict contenders.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, Fairness, Fault, Instant, Loss, Profile, ReleaseTarget,
    Successor,
};
use tenure_contenders::{Contenders, Table};

use super::acquire::{Attempt, read_epoch};
use super::contenders::{Contender, contenders};
use super::names;
use super::placed::{Placed, Spot};
use super::requests::{created, delete, is_in_epoch, put, read, remove};
use super::store::Locks;
use crate::client::{RANGE, RangeRequest};
use crate::error::is_database_full;

/// The most contenders whose presence proves that a later one waits. etcd allows 128 conditions.
const MAX_COMPARED: usize = 100;

impl Contenders for Locks {
    type Placed = Placed;
    type Contender = Contender;
    type Eviction = ();

    // An acquire is answered by the transaction that reads its key.
    const MIN_COOLDOWN: Duration = Duration::ZERO;

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn table(&self) -> &Table<Placed> {
        &self.table
    }

    async fn acquire(
        self: Arc<Self>,
        claim: Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        claim.check(&self.profile.limits)?;
        let turn = self.table.turn(&claim.at).await;
        let reply = self.acquire_in_turn(&claim, not_after).await;
        self.table.end_turn(claim.at.id, turn);
        reply
    }

    async fn unlock(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> Result<bool, BackendError> {
        let key = &*placed.spot.key;
        let (then, otherwise) = (vec![delete(key)], vec![read(key)]);
        if self
            .client
            .txn(placed.unchanged(), then, otherwise)
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

    async fn remove(self: &Arc<Self>, placed: &Placed) -> Result<bool, BackendError> {
        remove(&self.client, &placed.spot.key, placed.created).await
    }

    /// Begins a new epoch of the lease, too, in which the request has no effect.
    ///
    /// A repetition may arrive late, when another claim has the key: then it finds a later epoch, and deletes nothing.
    ///
    /// A full database accepts no new epoch. Then the key is deleted alone, which frees the lock, and the error is returned: the
    /// request may still have an effect.
    async fn withdraw(self: &Arc<Self>, _: ClaimId, spot: &Spot) -> Result<bool, BackendError> {
        let (lease, key, bell) = (&spot.lease, &*spot.key, &*spot.lease.bell);
        let epoch = lease.epoch();
        let send = async |then| {
            let otherwise = vec![read(bell), read(key)];
            self.client
                .txn(vec![is_in_epoch(bell, epoch)], then, otherwise)
                .await
        };
        let next = put(bell, (epoch + 1).to_string(), None);
        let reply = match send(vec![delete(key), next]).await {
            Err(error) if is_database_full(&error) => {
                send(vec![delete(key)]).await?;
                return Err(error);
            }
            reply => reply?,
        };
        if reply.succeeded {
            lease.set_epoch(epoch + 1);
            return Ok(reply.has_deleted());
        }
        // Another withdrawal has begun a new epoch, or the bell is gone.
        lease.set_epoch(reply.first(0).map_or(epoch, read_epoch));
        match reply.first(1) {
            Some(own) => remove(&self.client, key, own.create_revision).await,
            None => Ok(false),
        }
    }

    fn can_replace(&self, _: &Claim) -> bool {
        true
    }

    async fn replace(
        self: &Arc<Self>,
        placed: &Placed,
        successor: &Successor,
    ) -> Result<Option<Result<AcquireReply, BackendError>>, BackendError> {
        let (claim, not_after) = (&successor.claim, successor.not_after);
        let Ok(spot) = self.spot(claim).await else {
            return Ok(None);
        };
        let tries = claim.fairness == Fairness::Unfair;
        match self.place(claim, &spot, tries, Some(placed)).await? {
            Attempt::Placed(arrived) => Ok(Some(self.settle(claim, spot, arrived, not_after).await)),
            Attempt::Refused(_) | Attempt::Unusable => Ok(None),
        }
    }

    async fn downgrade(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> Result<(), BackendError> {
        self.make_reader(id, placed).await
    }

    async fn begin_eviction(self: &Arc<Self>) -> Result<(), BackendError> {
        Ok(())
    }

    async fn contenders(&self, (): &(), target: &ReleaseTarget) -> Result<Vec<Contender>, BackendError> {
        let folder = self.names.folder(target.key());
        let keys = self.client.call(RANGE, RangeRequest::prefix(&*folder)).await?.kvs;
        Ok(contenders(&folder, keys))
    }

    async fn mark(
        &self,
        (): &(),
        all: &[Contender],
        at: usize,
        by: Option<Arc<str>>,
    ) -> Result<bool, BackendError> {
        let (one, earlier) = (&all[at], &all[..at]);
        let waits = tenure_contenders::Contender::waits(all, at);
        let mut compare = vec![created(&one.key, one.created)];
        let others = earlier.iter().filter(|_| waits).take(MAX_COMPARED);
        compare.extend(others.map(|other| created(&other.key, other.created)));
        let then = match &one.value {
            None => vec![delete(&one.key)],
            Some(value) => {
                let note = names::note(value.id.client(), one.lease, value.id.number());
                let mark = value.clone().evicted(by).write();
                let end = match waits {
                    true => delete(&one.key),
                    false => put(&*one.key, mark.clone(), None),
                };
                vec![end, put(note, mark, Some(one.lease))]
            }
        };
        let reply = self.client.txn(compare, then, vec![read(&*one.key)]).await?;
        Ok(reply.succeeded)
    }

    async fn remove_marked(&self, (): &(), marked: &Contender) -> Result<(), BackendError> {
        remove(&self.client, &marked.key, marked.created).await?;
        Ok(())
    }

    /// A lease that was not prolonged for its own length is used no more, and ends its keys.
    fn ends_by_itself(&self, spot: &Spot, error: &BackendError) -> bool {
        error.fault() == Fault::Closed || spot.lease.ends_unless_kept(self.now())
    }
}
