//! Messages of the service that reads and writes keys.

use super::ResponseHeader;

/// Sorts a range by create revision.
const BY_CREATE_REVISION: i32 = 2;

/// Sorts a range from the greatest to the smallest.
const DESCEND: i32 = 2;

messages! {
    /// A key and what is stored for it.
    KeyValue {
        /// The key.
        key: Vec<u8> [bytes = "vec", tag = "1"],
        /// Revision of the write that created the key.
        create_revision: i64 [int64, tag = "2"],
        /// Revision of the last write of the key.
        mod_revision: i64 [int64, tag = "3"],
        /// The value.
        value: Vec<u8> [bytes = "vec", tag = "5"],
        /// ID of the lease that the key belongs to; 0 for none.
        lease: i64 [int64, tag = "6"],
    }

    /// A request to read a key, or the keys from `key` up to and without `range_end`.
    RangeRequest {
        /// The key, or the first key of the range.
        key: Vec<u8> [bytes = "vec", tag = "1"],
        /// The end of the range; empty for one key.
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
        /// The greatest number of keys in the reply; 0 for all.
        limit: i64 [int64, tag = "3"],
        /// The direction of the order; 0 for the order of the store, which is by key.
        sort_order: i32 [int32, tag = "5"],
        /// What the order compares.
        sort_target: i32 [int32, tag = "6"],
        /// Leave the values out.
        keys_only: bool [bool, tag = "8"],
        /// Leave out keys that were created later than this revision; 0 for none.
        max_create_revision: i64 [int64, tag = "13"],
    }
}

impl RangeRequest {
    /// Reads one key.
    pub fn key(key: impl Into<Vec<u8>>) -> Self {
        RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        }
    }

    /// Reads all keys with a prefix.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        let (key, range_end) = range_of_prefix(prefix);
        RangeRequest {
            range_end,
            ..RangeRequest::key(key)
        }
    }

    /// Reads only the keys that were created last, the newest first.
    #[must_use]
    pub fn newest(self, limit: i64) -> Self {
        RangeRequest {
            limit,
            sort_order: DESCEND,
            sort_target: BY_CREATE_REVISION,
            ..self
        }
    }
}

/// The first key and the end of the range of all keys with a prefix. The end is the prefix with its last byte raised; a
/// zero byte means "to the last key". No key is empty, so the range of all keys begins with a zero byte.
pub fn range_of_prefix(prefix: impl Into<String>) -> (Vec<u8>, Vec<u8>) {
    let key = prefix.into().into_bytes();
    let mut end = key.clone();
    match end.last_mut() {
        // Text has no byte 0xff.
        Some(last) => *last += 1,
        None => return (vec![0], vec![0]),
    }
    (key, end)
}

messages! {
    /// The reply to a [`RangeRequest`].
    RangeResponse {
        /// State of the cluster.
        header: ResponseHeader [message, required, tag = "1"],
        /// The keys.
        kvs: Vec<KeyValue> [message, repeated, tag = "2"],
    }

    /// A request to write a key.
    PutRequest {
        /// The key.
        key: Vec<u8> [bytes = "vec", tag = "1"],
        /// The value.
        value: Vec<u8> [bytes = "vec", tag = "2"],
        /// ID of the lease that the key then belongs to. With 0 it belongs to none, even if it did before, unless
        /// `ignore_lease` is set.
        lease: i64 [int64, tag = "3"],
        /// Keep the lease of the key, which must exist.
        ignore_lease: bool [bool, tag = "6"],
    }

    /// A request to delete a key.
    DeleteRangeRequest {
        /// The key.
        key: Vec<u8> [bytes = "vec", tag = "1"],
    }
}

/// What a [`Compare`] compares the key's property with.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Operand {
    /// The create revision; 0 if the key is missing.
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    /// The modification revision; 0 if the key is missing.
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    /// The value. The comparison is false if the key is missing.
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

messages! {
    /// A condition of a transaction: that a property of a key equals the operand. With a range it must be true for each of its
    /// keys. A range without keys counts as a missing key, whose revisions are 0.
    Compare {
        /// The number of the property.
        target: i32 [int32, tag = "2"],
        /// The key, or the first key of the range.
        key: Vec<u8> [bytes = "vec", tag = "3"],
        /// The operand.
        operand: Option<Operand> [oneof = "Operand", tags = "5, 6, 7"],
        /// The end of the range; empty for one key.
        range_end: Vec<u8> [bytes = "vec", tag = "64"],
    }
}

impl Compare {
    /// Compares the operand's property of one key.
    pub fn new(key: impl Into<Vec<u8>>, operand: Operand) -> Self {
        Compare {
            target: match operand {
                Operand::CreateRevision(_) => 1,
                Operand::ModRevision(_) => 2,
                Operand::Value(_) => 3,
            },
            key: key.into(),
            operand: Some(operand),
            range_end: Vec::new(),
        }
    }

    /// Compares the operand's property of all keys with a prefix.
    pub fn prefix(prefix: impl Into<String>, operand: Operand) -> Self {
        let (key, range_end) = range_of_prefix(prefix);
        Compare {
            range_end,
            ..Compare::new(key, operand)
        }
    }
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Op {
    /// Reads.
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    /// Writes.
    #[prost(message, tag = "2")]
    Put(PutRequest),
    /// Deletes.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

messages! {
    /// Carries an [`Op`].
    RequestOp {
        /// The operation.
        op: Option<Op> [oneof = "Op", tags = "1, 2, 3"],
    }

    /// The reply to an [`Op`].
    ResponseOp {
        /// The reply to a read; `None` for other operations.
        range: Option<RangeResponse> [message, optional, tag = "1"],
    }

    /// A transaction: one of two lists of operations, chosen by conditions, in one step of the store.
    TxnRequest {
        /// The conditions.
        compare: Vec<Compare> [message, repeated, tag = "1"],
        /// The operations if all conditions are true.
        success: Vec<RequestOp> [message, repeated, tag = "2"],
        /// The operations otherwise.
        failure: Vec<RequestOp> [message, repeated, tag = "3"],
    }

    /// The reply to a transaction.
    TxnResponse {
        /// State of the cluster.
        header: ResponseHeader [message, required, tag = "1"],
        /// Whether all conditions were true.
        succeeded: bool [bool, tag = "2"],
        /// The replies to the operations, in their order.
        responses: Vec<ResponseOp> [message, repeated, tag = "3"],
    }
}

impl TxnResponse {
    /// The first key that the operation at this position has read.
    pub fn first(&self, at: usize) -> Option<&KeyValue> {
        self.responses.get(at)?.range.as_ref()?.kvs.first()
    }

    /// The keys that the last operation has read.
    pub fn take_last(&mut self) -> Vec<KeyValue> {
        let last = self.responses.pop().and_then(|reply| reply.range);
        last.unwrap_or_default().kvs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        for (prefix, first, end) in [
            ("a/", &b"a/"[..], &b"a0"[..]),
            ("\u{7f}", b"\x7f", b"\x80"),
            ("", b"\0", b"\0"),
        ] {
            assert_eq!(range_of_prefix(prefix), (first.to_vec(), end.to_vec()));
        }
    }
}
