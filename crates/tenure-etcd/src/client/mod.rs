//! Calls, streams and watches on one member of an etcd cluster, and the change to another member.

mod calls;
mod connection;
mod member;
mod members;
mod messages;
mod methods;
mod stream;
mod watch;

pub use crate::error::is_missing_lease;
pub use calls::Client;
pub use messages::*;
pub use methods::*;
pub use stream::Replies;
pub use watch::Watch;
