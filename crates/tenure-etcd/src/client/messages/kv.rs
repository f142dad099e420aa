//! Messages of the service that reads and writes keys.

use super::common::{ResponseHeader, Written};

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
}

/// By which property of the keys a range is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SortTarget {
    /// The key's bytes.
    Key = 0,
    /// The create revision.
    Create = 2,
}

/// In which direction a range is sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SortOrder {
    /// By key, as the store keeps them.
    None = 0,
    /// The smallest first.
    Ascend = 1,
    /// The greatest first.
    Descend = 2,
}

messages! {
    /// A request to read a key, or the keys from `key` up to and without `range_end`.
    RangeRequest {
        /// The key, or the first key of the range.
        key: Vec<u8> [bytes = "vec", tag = "1"],
        /// The end of the range; empty for one key.
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
        /// The greatest number of keys in the reply; 0 for all.
        limit: i64 [int64, tag = "3"],
        /// The direction of the order.
        sort_order: i32 [enumeration = "SortOrder", tag = "5"],
        /// What the order compares.
        sort_target: i32 [enumeration = "SortTarget", tag = "6"],
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
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> Self {
        let (key, range_end) = range_of_prefix(prefix);
        RangeRequest {
            range_end,
            ..RangeRequest::key(key)
        }
    }

    /// Sorts the keys.
    #[must_use]
    pub fn sorted(self, target: SortTarget, order: SortOrder) -> Self {
        RangeRequest {
            sort_order: order.into(),
            sort_target: target.into(),
            ..self
        }
    }
}

/// The first key and the end of the range of all keys with a prefix. The end is the prefix with its last byte raised; a
/// zero byte means "to the last key". No key is empty, so the range of all keys begins with a zero byte.
pub fn range_of_prefix(prefix: impl Into<Vec<u8>>) -> (Vec<u8>, Vec<u8>) {
    let mut key = prefix.into();
    let kept = key.iter().rposition(|byte| *byte < 0xff).map_or(0, |at| at + 1);
    let mut end = key[..kept].to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(0),
    }
    if key.is_empty() {
        key.push(0);
    }
    (key, end)
}

messages! {
    /// The reply to a [`RangeRequest`].
    RangeResponse {
        /// State of the cluster.
        header: Option<ResponseHeader> [message, optional, tag = "1"],
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

    /// A request to delete a key, or the keys from `key` up to and without `range_end`.
    DeleteRangeRequest {
        /// The key, or the first key of the range.
        key: Vec<u8> [bytes = "vec", tag = "1"],
        /// The end of the range; empty for one key.
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
    }

    /// The reply to a [`DeleteRangeRequest`].
    #[derive(Copy)]
    DeleteRangeResponse {
        /// State of the cluster.
        header: Option<ResponseHeader> [message, optional, tag = "1"],
        /// Number of keys that were deleted.
        deleted: i64 [int64, tag = "2"],
    }
}

/// How a [`Compare`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Relation {
    /// The property equals the operand.
    Equal = 0,
}

/// The property of a key that a [`Compare`] looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CompareTarget {
    /// Number of writes since the key was created. Unused, but prost does not send the first value of an enumeration, and
    /// etcd takes 0 for a missing one.
    Version = 0,
    /// The create revision; 0 if the key is missing.
    Create = 1,
    /// The modification revision; 0 if the key is missing.
    Mod = 2,
    /// The value. The comparison is false if the key is missing.
    Value = 3,
}

/// What a [`Compare`] compares the key's property with.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Operand {
    /// A create revision.
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    /// A modification revision.
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    /// A value.
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

messages! {
    /// A condition of a transaction. With a range it must be true for each of its keys. A range without keys counts as a missing
    /// key, whose revisions are 0.
    Compare {
        /// How the property and the operand are compared.
        result: i32 [enumeration = "Relation", tag = "1"],
        /// The property.
        target: i32 [enumeration = "CompareTarget", tag = "2"],
        /// The key, or the first key of the range.
        key: Vec<u8> [bytes = "vec", tag = "3"],
        /// The operand.
        operand: Option<Operand> [oneof = "Operand", tags = "5, 6, 7"],
        /// The end of the range; empty for one key.
        range_end: Vec<u8> [bytes = "vec", tag = "64"],
    }
}

impl Compare {
    /// Compares a property of one key.
    pub fn new(key: impl Into<Vec<u8>>, relation: Relation, operand: Operand) -> Self {
        let target = match operand {
            Operand::CreateRevision(_) => CompareTarget::Create,
            Operand::ModRevision(_) => CompareTarget::Mod,
            Operand::Value(_) => CompareTarget::Value,
        };
        Compare {
            result: relation.into(),
            target: target.into(),
            key: key.into(),
            operand: Some(operand),
            range_end: Vec::new(),
        }
    }

    /// Applies the condition to all keys with the prefix that was given as the key.
    #[must_use]
    pub fn prefix(mut self) -> Self {
        (self.key, self.range_end) = range_of_prefix(self.key);
        self
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

/// The reply to one operation of a transaction.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum OpReply {
    /// The reply to a read.
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    /// The reply to a write.
    #[prost(message, tag = "2")]
    Put(Written),
    /// The reply to a deletion.
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeResponse),
}

messages! {
    /// Carries an [`Op`].
    RequestOp {
        /// The operation.
        op: Option<Op> [oneof = "Op", tags = "1, 2, 3"],
    }

    /// Carries an [`OpReply`].
    ResponseOp {
        /// The reply.
        reply: Option<OpReply> [oneof = "OpReply", tags = "1, 2, 3"],
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
}

impl TxnRequest {
    /// Carries out `then` if all of `compare` are true, `otherwise` if not.
    pub fn new(compare: Vec<Compare>, then: Vec<Op>, otherwise: Vec<Op>) -> Self {
        let carried = |ops: Vec<Op>| ops.into_iter().map(|op| RequestOp { op: Some(op) }).collect();
        TxnRequest {
            compare,
            success: carried(then),
            failure: carried(otherwise),
        }
    }
}

messages! {
    /// The reply to a [`TxnRequest`].
    TxnResponse {
        /// State of the cluster.
        header: Option<ResponseHeader> [message, optional, tag = "1"],
        /// Whether all conditions were true.
        succeeded: bool [bool, tag = "2"],
        /// The replies to the operations, in their order.
        responses: Vec<ResponseOp> [message, repeated, tag = "3"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        for (prefix, first, end) in [
            (&b"a/"[..], &b"a/"[..], &b"a0"[..]),
            (b"a\xff", b"a\xff", b"b"),
            (b"\xff\xff", b"\xff\xff", b"\0"),
            (b"", b"\0", b"\0"),
        ] {
            assert_eq!(range_of_prefix(prefix), (first.to_vec(), end.to_vec()));
        }
    }
}
