//! Messages of the service that reports changes of keys.

use super::common::ResponseHeader;
use super::kv::KeyValue;

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum EventType {
    /// The key was written.
    Put = 0,
    /// The key was deleted, or its lease ended.
    Delete = 1,
}

messages! {
    /// A change of a key.
    Event {
        /// What happened.
        r#type: i32 [enumeration = "EventType", tag = "1"],
        /// The key after the change. A deleted key has its modification revision only.
        kv: Option<KeyValue> [message, optional, tag = "2"],
    }
}

/// Events that a watch leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Filter {
    /// Writes.
    NoPut = 0,
}

messages! {
    /// A request to watch a key, or the keys from `key` up to and without `range_end`.
    WatchCreateRequest {
        /// The key, or the first key of the range.
        key: Vec<u8> [bytes = "vec", tag = "1"],
        /// The end of the range; empty for one key.
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
        /// The first revision to report; 0 for all changes after the creation of the watch.
        start_revision: i64 [int64, tag = "3"],
        /// Events to leave out.
        filters: Vec<i32> [enumeration = "Filter", repeated, tag = "5"],
        /// The watch's ID on its stream. The client sets it.
        watch_id: i64 [int64, tag = "7"],
    }

    /// A request to end a watch.
    #[derive(Copy)]
    WatchCancelRequest {
        /// The watch's ID.
        watch_id: i64 [int64, tag = "1"],
    }
}

/// What a client asks on a stream of watches.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum WatchOrder {
    /// Creates a watch.
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    /// Ends a watch.
    #[prost(message, tag = "2")]
    Cancel(WatchCancelRequest),
}

messages! {
    /// Carries a [`WatchOrder`].
    WatchRequest {
        /// The order.
        order: Option<WatchOrder> [oneof = "WatchOrder", tags = "1, 2"],
    }
}

impl From<WatchOrder> for WatchRequest {
    fn from(order: WatchOrder) -> Self {
        WatchRequest { order: Some(order) }
    }
}

messages! {
    /// A message on a stream of watches.
    WatchResponse {
        /// State of the cluster.
        header: Option<ResponseHeader> [message, optional, tag = "1"],
        /// The watch's ID.
        watch_id: i64 [int64, tag = "2"],
        /// Whether this answers a request to create a watch.
        created: bool [bool, tag = "3"],
        /// Whether the watch has ended, or was not created.
        canceled: bool [bool, tag = "4"],
        /// The earliest revision that the store still has, if the watch asked for an earlier one.
        compact_revision: i64 [int64, tag = "5"],
        /// Why the watch has ended.
        cancel_reason: String [string, tag = "6"],
        /// The changes, in order of their revisions.
        events: Vec<Event> [message, repeated, tag = "11"],
    }
}
