//! Messages of the service that reports changes of keys.

use super::{KeyValue, ResponseHeader};

/// Leaves writes out of the events of a watch.
pub const NO_PUT: i32 = 0;

messages! {
    /// A change of a key.
    Event {
        /// Whether the key was deleted, or its lease ended. Otherwise it was written.
        is_deletion: bool [bool, tag = "1"],
        /// The key after the change. A deleted key has its modification revision only.
        kv: Option<KeyValue> [message, optional, tag = "2"],
    }

    /// A request to watch a key, or the keys from `key` up to and without `range_end`. The watch reports what changes after its
    /// creation.
    WatchCreateRequest {
        /// The key, or the first key of the range.
        key: Vec<u8> [bytes = "vec", tag = "1"],
        /// The end of the range; empty for one key.
        range_end: Vec<u8> [bytes = "vec", tag = "2"],
        /// Events to leave out, such as [`NO_PUT`].
        filters: Vec<i32> [int32, repeated, tag = "5"],
        /// The watch's ID on its stream. The client sets it.
        watch_id: i64 [int64, tag = "7"],
    }

    /// A request to end a watch.
    #[derive(Copy)]
    WatchCancelRequest {
        /// The watch's ID.
        watch_id: i64 [int64, tag = "1"],
    }

    /// What a client asks on a stream of watches: one of the fields.
    WatchRequest {
        /// Creates a watch.
        create: Option<WatchCreateRequest> [message, optional, tag = "1"],
        /// Ends a watch.
        cancel: Option<WatchCancelRequest> [message, optional, tag = "2"],
    }

    /// A message on a stream of watches.
    WatchResponse {
        /// State of the cluster. If the watch was created, it reports all changes after this revision.
        header: ResponseHeader [message, required, tag = "1"],
        /// The watch's ID.
        watch_id: i64 [int64, tag = "2"],
        /// Whether this answers a request to create a watch.
        created: bool [bool, tag = "3"],
        /// Whether the watch has ended, or was not created.
        canceled: bool [bool, tag = "4"],
        /// Why the watch has ended.
        cancel_reason: String [string, tag = "6"],
        /// The changes, in order of their revisions.
        events: Vec<Event> [message, repeated, tag = "11"],
    }
}
