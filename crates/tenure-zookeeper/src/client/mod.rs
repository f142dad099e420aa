//! A session in ZooKeeper: its requests, its watches, and its connections to one server at a time.

mod calls;
mod connect;
mod exchange;
mod frames;
mod jute;
mod messages;
mod order;
mod session;
mod watch;
mod words;

pub use crate::error::{Code, code, is_session_end};
pub use calls::Client;
pub use messages::{Acl, Created, Done, Mode, Op, Outcome, Stat};
pub use session::{SessionInfo, State};
pub use watch::{Event, Watch};
pub(crate) use words::ask;
