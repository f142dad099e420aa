//! The messages of etcd's API that the client sends and receives, with the fields that it uses. Tags are those of etcd's
//! `rpc.proto`; a message that is the same in several services there has one type here.
//!
//! Requests to read have no field `serializable`: each answer is of the majority, never of one member's memory.

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
