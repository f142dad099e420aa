//! Messages of the service that reports changes of keys.

use super::common::{Empty, ResponseHeader};
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

/// A change of a key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Event {
    /// What happened.
    #[prost(enumeration = "EventType", tag = "1")]
    pub r#type: i32,
    /// The key after the change. A deleted key has its modification revision only.
    #[prost(message, optional, tag = "2")]
    pub kv: Option<KeyValue>,
}

/// Events that a watch leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Filter {
    /// Writes.
    NoPut = 0,
}

/// A request to watch a key, or the keys from `key` up to and without `range_end`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchCreateRequest {
    /// The key, or the first key of the range.
    #[prost(bytes = "vec", tag = "1")]
    pub key: Vec<u8>,
    /// The end of the range; empty for one key.
    #[prost(bytes = "vec", tag = "2")]
    pub range_end: Vec<u8>,
    /// The first revision to report; 0 for all changes after the creation of the watch.
    #[prost(int64, tag = "3")]
    pub start_revision: i64,
    /// Events to leave out.
    #[prost(enumeration = "Filter", repeated, tag = "5")]
    pub filters: Vec<i32>,
    /// The watch's ID on its stream. The client sets it.
    #[prost(int64, tag = "7")]
    pub watch_id: i64,
}

/// A request to end a watch.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WatchCancelRequest {
    /// The watch's ID.
    #[prost(int64, tag = "1")]
    pub watch_id: i64,
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
    /// Asks how far the watches are.
    #[prost(message, tag = "3")]
    Progress(Empty),
}

/// Carries a [`WatchOrder`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchRequest {
    /// The order.
    #[prost(oneof = "WatchOrder", tags = "1, 2, 3")]
    pub order: Option<WatchOrder>,
}

impl From<WatchOrder> for WatchRequest {
    fn from(order: WatchOrder) -> Self {
        WatchRequest { order: Some(order) }
    }
}

/// A message on a stream of watches.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct WatchResponse {
    /// State of the cluster.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The watch's ID; -1 if the message is for all watches.
    #[prost(int64, tag = "2")]
    pub watch_id: i64,
    /// Whether this answers a request to create a watch.
    #[prost(bool, tag = "3")]
    pub created: bool,
    /// Whether the watch has ended, or was not created.
    #[prost(bool, tag = "4")]
    pub canceled: bool,
    /// The earliest revision that the store still has, if the watch asked for an earlier one.
    #[prost(int64, tag = "5")]
    pub compact_revision: i64,
    /// Why the watch has ended.
    #[prost(string, tag = "6")]
    pub cancel_reason: String,
    /// The changes, in order of their revisions.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
}
