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
mod common;
mod kv;
mod lease;
mod watch;

pub use cluster::*;
pub use common::*;
pub use kv::*;
pub use lease::*;
pub use watch::*;
