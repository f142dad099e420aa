//! What the shared part asks of etcd: to end claims, and to evict contenders.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, ClaimId, Clock, Fairness, Fault, Profile, ReleaseTarget, Successor,
};
use tenure_contenders::{Contenders, Table};

use super::acquire::{Attempt, read_epoch};
use super::contenders::{Contender, contenders};
use super::names;
use super::placed::{Placed, Spot};
use super::requests::{delete, is_in_epoch, modified, put, read, remove};
use super::store::Locks;
use crate::client::{RANGE, RangeRequest};
use crate::error::is_database_full;

/// The most contenders whose presence proves that a later one waits. etcd allows 128 conditions.
const MAX_COMPARED: usize = 100;

impl Contenders for Locks {
    type Placed = Placed;
    type Contender = Contender;

    // An acquire is answered by the transaction that reads its key.
    const MIN_COOLDOWN: Duration = Duration::ZERO;

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn table(&self) -> &Table<Placed> {
        &self.table
    }

    fn address(&self) -> String {
        self.config.address()
    }

    fn close(&self) {
        self.client.close();
        self.table.close();
    }

    async fn unlock(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> Result<bool, BackendError> {
        let key = &*placed.spot.key;
        let (then, otherwise) = (vec![delete(key)], vec![read(key)]);
        let reply = self.client.txn(placed.unchanged(), then, otherwise).await?;
        if reply.succeeded {
            return Ok(true);
        }
        // A key that a downgrade has changed is deleted whatever it says.
        Ok(self.is_own(id, placed, reply.first(0)).await? && self.remove(placed).await?)
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
        let (lease, key, lease_key) = (&spot.lease, &*spot.key, &*spot.lease.key);
        let epoch = lease.epoch();
        let send = async |then| {
            let otherwise = vec![read(lease_key), read(key)];
            self.client
                .txn(vec![is_in_epoch(lease_key, epoch)], then, otherwise)
                .await
        };
        let next = put(lease_key, (epoch + 1).to_string(), None);
        let reply = match send(vec![read(key), delete(key), next]).await {
            Err(error) if is_database_full(&error) => {
                send(vec![delete(key)]).await?;
                return Err(error);
            }
            reply => reply?,
        };
        if reply.succeeded {
            lease.set_epoch(epoch + 1);
            return Ok(reply.first(0).is_some());
        }
        // Another withdrawal has begun a new epoch, or the lease's key is gone.
        lease.set_epoch(reply.first(0).map_or(epoch, read_epoch));
        match reply.first(1) {
            Some(own) => remove(&self.client, key, own.create_revision).await,
            None => Ok(false),
        }
    }

    async fn replace(
        self: &Arc<Self>,
        placed: &Placed,
        successor: &Successor,
    ) -> Result<Option<Result<AcquireReply, BackendError>>, BackendError> {
        let (claim, tries) = (&successor.claim, successor.claim.fairness == Fairness::Unfair);
        let Ok(spot) = self.spot(claim).await else {
            return Ok(None);
        };
        match self.write(claim, spot, tries, Some(placed)).await? {
            Attempt::Placed(placed, confirmed) => {
                let settled = self.settle(claim, *placed, confirmed, successor.not_after);
                Ok(Some(settled.await))
            }
            Attempt::Refused(_) | Attempt::Again => Ok(None),
        }
    }

    async fn contenders(self: &Arc<Self>, target: &ReleaseTarget) -> Result<Vec<Contender>, BackendError> {
        let folder = self.names.folder(target.key());
        let keys = self.client.call(RANGE, RangeRequest::prefix(&*folder)).await?.kvs;
        Ok(contenders(&folder, keys))
    }

    async fn mark(
        self: &Arc<Self>,
        all: &[Contender],
        at: usize,
        by: Option<Arc<str>>,
    ) -> Result<bool, BackendError> {
        let (one, earlier) = (&all[at], &all[..at]);
        let waits = tenure_contenders::Contender::waits(all, at);
        // A contender that waits is removed only if those before it, which it waits for, are still there: one that has been
        // downgraded meanwhile may have let it in.
        let others = earlier.iter().filter(|_| waits).take(MAX_COMPARED);
        let compared = [one].into_iter().chain(others);
        let compare = compared
            .map(|one| modified(&one.kv.key, one.kv.mod_revision))
            .collect();
        let then = match &one.value {
            None => vec![delete(&one.kv.key)],
            Some(value) => {
                let note = names::note(value.id.client(), one.kv.lease, value.id.number());
                let mark = value.clone().evicted(by).write();
                let end = match waits {
                    true => delete(&one.kv.key),
                    false => put(&*one.kv.key, mark.clone(), None),
                };
                vec![end, put(note, mark, Some(one.kv.lease))]
            }
        };
        let reply = self.client.txn(compare, then, vec![read(&*one.kv.key)]).await?;
        Ok(reply.succeeded)
    }

    async fn remove_marked(self: &Arc<Self>, marked: &Contender) -> Result<(), BackendError> {
        remove(&self.client, &marked.kv.key, marked.kv.create_revision).await?;
        Ok(())
    }

    /// A lease that was not prolonged for its own length is used no more, and ends its keys.
    fn ends_by_itself(&self, spot: &Spot, error: &BackendError) -> bool {
        error.fault() == Fault::Closed || spot.lease.ends_unless_kept(self.now())
    }
}
