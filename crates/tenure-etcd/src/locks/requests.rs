//! The parts of transactions that several verbs send, and their replies.

use tenure_backend::BackendError;

use crate::client::{
    Client, Compare, DeleteRangeRequest, KeyValue, Op, OpReply, Operand, PutRequest, RangeRequest, Relation,
    ResponseHeader, TxnRequest,
};

/// The reply to a transaction.
pub(super) struct Reply {
    pub(super) succeeded: bool,
    pub(super) header: ResponseHeader,
    /// The keys that each read has found.
    pub(super) reads: Vec<Vec<KeyValue>>,
    /// Number of keys that were deleted.
    pub(super) deleted: i64,
}

impl Reply {
    /// The first key that a read has found.
    pub(super) fn first(&self, read: usize) -> Option<&KeyValue> {
        self.reads.get(read)?.first()
    }
}

/// Carries out `then` if all of `compare` are true, `otherwise` if not.
pub(super) async fn txn(
    client: &Client,
    compare: Vec<Compare>,
    then: Vec<Op>,
    otherwise: Vec<Op>,
) -> Result<Reply, BackendError> {
    let reply = client.txn(TxnRequest::new(compare, then, otherwise)).await?;
    let (mut reads, mut deleted) = (Vec::new(), 0);
    for response in reply.responses {
        match response.reply {
            Some(OpReply::Range(range)) => reads.push(range.kvs),
            Some(OpReply::DeleteRange(removed)) => deleted += removed.deleted,
            Some(OpReply::Put(_)) | None => {}
        }
    }
    Ok(Reply {
        succeeded: reply.succeeded,
        header: reply.header.unwrap_or_default(),
        reads,
        deleted,
    })
}

/// Removes a key, if it was created at this revision. Returns whether it was there.
pub(super) async fn remove(client: &Client, key: &[u8], at: i64) -> Result<bool, BackendError> {
    let removed = txn(client, vec![created(key, at)], vec![delete(key)], vec![read(key)]).await?;
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
    Op::DeleteRange(DeleteRangeRequest {
        key: key.into(),
        range_end: Vec::new(),
    })
}

/// The condition that a key was created at this revision, or is missing for 0.
pub(super) fn created(key: &[u8], revision: i64) -> Compare {
    Compare::new(key, Relation::Equal, Operand::CreateRevision(revision))
}

/// The condition that a lease is in this epoch, which the value of its bell says.
pub(super) fn is_in_epoch(bell: &str, epoch: u64) -> Compare {
    let epoch = epoch.to_string();
    Compare::new(bell, Relation::Equal, Operand::Value(epoch.into()))
}

/// The condition that a key was last written at this revision.
pub(super) fn modified(key: &[u8], revision: i64) -> Compare {
    Compare::new(key, Relation::Equal, Operand::ModRevision(revision))
}
