//! The messages of etcd's API that the client sends and receives, with the fields that it uses. Tags are those of etcd's
//! `rpc.proto`; a message that is the same in several services there has one type here.
//!
//! A message field that every message has is `required`, which prost does not check: without it the default is read. Requests to
//! read have no field `serializable`: each answer is of the majority, never of one member's memory.

/// Defines messages. In brackets is what prost needs to know of a field.
macro_rules! messages {
    ($($(#[$about:meta])* $name:ident { $($(#[$what:meta])* $field:ident: $type:ty [$($prost:tt)*],)* })*) => {$(
        #[derive(Clone, PartialEq, Eq, prost::Message)]
        $(#[$about])*
        pub struct $name {
            $($(#[$what])* #[prost($($prost)*)] pub $field: $type,)*
        }
    )*};
}

mod cluster;
mod kv;
mod lease;
mod watch;

pub use cluster::*;
pub use kv::*;
pub use lease::*;
pub use watch::*;

messages! {
    /// State of the cluster when the member answered.
    #[derive(Copy)]
    ResponseHeader {
        /// ID of the member that answered.
        member_id: u64 [uint64, tag = "2"],
        /// Revision of the store. In the reply to a write it is the revision of that write.
        revision: i64 [int64, tag = "3"],
        /// Raft's term, as that member knew it.
        raft_term: u64 [uint64, tag = "4"],
    }

    /// The reply to a request that only writes.
    #[derive(Copy)]
    Written {
        /// State of the cluster.
        header: ResponseHeader [message, required, tag = "1"],
    }

    /// A request without fields.
    #[derive(Copy)]
    Empty {}
}
