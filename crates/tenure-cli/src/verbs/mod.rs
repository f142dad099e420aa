//! What each verb does: from arguments to an exit code.

#[cfg(unix)]
mod command;
mod doctor;
#[cfg(unix)]
mod elect;
mod evict;
mod generated;
#[cfg(unix)]
mod hold;
#[cfg(unix)]
mod holder;
#[cfg(unix)]
mod lock;
mod look;
mod obey;
#[cfg(unix)]
mod run;
mod schema;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod stdin;
mod store;
#[cfg(unix)]
mod wait_line;
#[cfg(unix)]
mod ward;
mod watch;

pub use obey::{STORE_FAILED, obey};
