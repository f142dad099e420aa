//! Confirming: proves that a claim's key and lease are alive, or finds out why the claim was lost.

use std::sync::Arc;

use tenure_backend::{BackendError, ClaimId, Effect, Fault, HANDOVER_WINDOW, Instant, Loss};
use tenure_contenders::{Contenders as _, Value, remove_after_cooldown};

use super::contenders::value_of;
use super::leases::{Kept, Lease};
use super::names;
use super::placed::Placed;
use super::requests::{delete, read};
use super::store::Locks;
use crate::client::{KeyValue, Op, TxnResponse};

/// How often a request is repeated that had no effect: its lease had ended, or its epoch, or a leader was elected.
pub(super) const MAX_REPEATS: u32 = 8;

/// Reads that prove the last keep-alive of a lease.
pub(super) struct Confirmed {
    pub(super) kept: Kept,
    /// When the reads were sent.
    pub(super) sent: Instant,
    pub(super) reply: TxnResponse,
}

/// Error for a request that was repeated too often. None of them had an effect.
pub(super) fn unsettled() -> BackendError {
    let message = "etcd has elected leaders, or ended leases, again and again during this request: see whether its members run";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a claim whose key belongs to an earlier claim of this client.
pub(super) fn in_use() -> BackendError {
    let message = "an earlier claim of this client on the lock has not left yet: try again";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

impl Locks {
    /// Sends reads after a keep-alive of the lease, and returns their replies if both prove that the lease was prolonged. `None`
    /// if the lease has ended. With `restart`, the keep-alive is sent even if the last one is recent.
    pub(super) async fn confirmed(
        &self,
        lease: &Arc<Lease>,
        mut restart: bool,
        reads: impl Fn() -> Vec<Op>,
    ) -> Result<Option<Confirmed>, BackendError> {
        for _ in 0..MAX_REPEATS {
            if restart {
                self.leases.keep(std::slice::from_ref(lease)).await?;
            }
            if !self.leases.refresh(lease).await? {
                return Ok(None);
            }
            let (kept, sent) = (lease.kept(), self.now());
            let reply = self.client.txn(Vec::new(), reads(), Vec::new()).await?;
            if kept.is_proved_by(&reply.header) {
                return Ok(Some(Confirmed { kept, sent, reply }));
            }
            restart = true;
        }
        Err(unsettled())
    }

    /// Returns whether a claim's key, as it was read, is as this client wrote it last. Otherwise finds out why it is not, and records
    /// the loss.
    pub(super) async fn is_own(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
        own: Option<&KeyValue>,
    ) -> Result<bool, BackendError> {
        let is_created = |own: &&KeyValue| own.create_revision == placed.created;
        if own
            .filter(is_created)
            .is_some_and(|own| own.mod_revision == placed.modified)
        {
            return Ok(true);
        }
        let note = names::note(id.client(), placed.spot.lease.id, id.number());
        let reads = vec![read(&*placed.spot.key), read(&*note)];
        let found = self.client.txn(Vec::new(), reads, Vec::new()).await?;
        let own = found.first(0).filter(is_created);
        let value = own.and_then(value_of).filter(|value| value.id == id);
        if let (Some(own), Some(value)) = (own, &value)
            && !value.is_evicted
        {
            // A downgrade by this client has changed the key meanwhile.
            return Ok(self.table.update(id, placed.created, |placed| {
                (placed.modified, placed.value) = (own.mod_revision, value.clone());
            }));
        }
        if own.is_some() {
            remove_after_cooldown(self, placed);
            // The place stays reserved until its key is withdrawn: another claim could not be placed there.
            self.table.unanswered(id, self.now() + HANDOVER_WINDOW);
        }
        if found.first(1).is_some() {
            // Without this, notes would stay for as long as the lease is kept alive. If it fails, this one stays.
            let delete = vec![delete(note.as_bytes())];
            let _ = self.client.txn(Vec::new(), delete, Vec::new()).await;
        }
        let noted = || Value::read(&found.first(1)?.value).filter(|mark| mark.id == id && mark.is_evicted);
        let loss = match value.or_else(noted) {
            Some(mark) => Loss::Evicted { by: mark.evictor() },
            None if placed.own_lease.ends <= self.now() => Loss::Expired,
            None => Loss::Missing,
        };
        self.lose(id, placed, loss);
        Ok(false)
    }

    /// Records the loss of a claim.
    pub(super) fn lose(&self, id: ClaimId, placed: &Placed, loss: Loss) {
        let remembered = placed.spot.lease.ttl;
        self.table.end(id, self.now(), Some((loss, remembered)));
    }
}
