//! The locks of this crate for threads: the same types and methods, without async. The async types document the locks
//! and their guarantees.
//!
//! The blocking API differs in four points. Work under a lock should call `check` on its guard, because a thread cannot
//! be dropped in the middle of its work. Methods that wait for a lock, a loss or a change have a variant with a limit,
//! whose name ends in `_within`. [`Changes`] is an iterator. There is no `on_waiting`: to report that a thread waits,
//! call `try_lock` first.
//!
//! ```
//! # fn main() -> Result<(), tenure::Error> {
//! use std::time::Duration;
//!
//! let client = tenure::blocking::connect("memory:")?;
//! let guard = client.mutex("invoice:7").lock()?;
//! println!("fenced by {:?}", guard.token());
//! guard.unlock()?;
//! client.close(Duration::from_secs(1))?;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//! - A call runs on its caller's thread and blocks nothing else. Each client has one thread of its own,
//!   `tenure-blocking`, on which its watchdog and its I/O run; your work does not run there, so it delays no renewal.
//!   The thread ends when the client, its locks and its guards are dropped and their claims released.
//! - Dropping a guard or a client never blocks and never panics, wherever that happens.
//! - No guarantee that work under a lock stops when the lock is lost: a thread cannot be stopped from outside. Ask
//!   `Guard::check` between steps, or wait on another thread with `Guard::lost_within`.
//!
//! # Panics
//! Every call that can wait panics on a thread that drives async tasks, since it would stop them all: use
//! [`tenure::Client`](crate::Client) there, or `tokio::task::spawn_blocking`, where blocking calls work.

mod adapter;
mod changes;
mod client;
mod election;
mod guard;
mod locks;
mod multi;
mod runtime;
mod scope;

pub use crate::engine::owner::Owner;
pub use adapter::Blocking;
pub use changes::Changes;
pub use client::{Client, connect, connect_with};
pub use election::{Election, Leader};
pub use guard::Guard;
pub use locks::{Lock, Mutex, RwLock, Semaphore, Striped};
pub use multi::{Multi, MultiGuard, multi};
#[cfg(feature = "testing")]
pub(crate) use runtime::Runtime;
