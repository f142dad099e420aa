//! Calls, streams and watches on one member of an etcd cluster, and the change to another member.

mod calls;
mod connection;
mod dial;
mod keep_alive;
mod member;
mod members;
mod messages;
mod stream;
mod watch;

pub use crate::error::is_missing_lease;
pub use calls::Client;
pub use keep_alive::KeepAlives;
pub use messages::*;
pub use watch::{Update, Watch};
