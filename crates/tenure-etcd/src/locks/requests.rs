//! The parts of transactions that several verbs send, and their replies.

use tenure_backend::BackendError;

use crate::client::{Client, Compare, DeleteRangeRequest, Op, Operand, PutRequest, RangeRequest};

/// Removes a key, if it was created at this revision. Returns whether it was there.
pub(super) async fn remove(client: &Client, key: &[u8], at: i64) -> Result<bool, BackendError> {
    let removed = client
        .txn(vec![created(key, at)], vec![delete(key)], vec![read(key)])
        .await?;
    Ok(removed.succeeded)
}

pub(super) fn read(key: impl Into<Vec<u8>>) -> Op {
    Op::Range(RangeRequest::key(key))
}

/// Writes a key on a lease; with `None`, on the lease that the key has. The key must exist then.
pub(super) fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: Option<i64>) -> Op {
    Op::Put(PutRequest {
        key: key.into(),
        value: value.into(),
        lease: lease.unwrap_or_default(),
        // A write without a lease would take the key off its lease, for ever.
        ignore_lease: lease.is_none(),
    })
}

pub(super) fn delete(key: &[u8]) -> Op {
    Op::DeleteRange(DeleteRangeRequest { key: key.into() })
}

/// The condition that a key was created at this revision, or is missing for 0.
pub(super) fn created(key: &[u8], revision: i64) -> Compare {
    Compare::new(key, Operand::CreateRevision(revision))
}

/// The condition that a lease is in this epoch, which the value of its key says.
pub(super) fn is_in_epoch(lease_key: &str, epoch: u64) -> Compare {
    let epoch = epoch.to_string();
    Compare::new(lease_key, Operand::Value(epoch.into()))
}

/// The condition that a key was last written at this revision.
pub(super) fn modified(key: &[u8], revision: i64) -> Compare {
    Compare::new(key, Operand::ModRevision(revision))
}
