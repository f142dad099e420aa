//! The verbs, and what several of them share. Each verb carries out its parsed arguments and returns an exit code.

#[cfg(unix)]
mod command;
mod dispatch;
mod doctor;
#[cfg(unix)]
mod elect;
mod evict;
mod generated;
#[cfg(unix)]
mod hold;
#[cfg(unix)]
mod holder;
mod inspect;
#[cfg(unix)]
mod lock;
#[cfg(unix)]
mod run;
mod schema;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod stdin;
mod store;
#[cfg(unix)]
mod supervise;
#[cfg(unix)]
mod wait_line;
mod watch;

pub use dispatch::{STORE_FAILED, dispatch};
