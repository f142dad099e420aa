//! Distributed locks that tell you when they are lost, over any store.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! let client = tenure::connect("memory:").await?;
//! let guard = client.mutex("invoice:7").lock().await?;
//! let done = guard.while_held(async { "sent" }).await;
//! guard.unlock().await?;
//! # assert_eq!(done, Ok("sent")); Ok(()) }
//! ```
//!
//! - [`Client`] is a store; [`Mutex`], [`RwLock`], [`Semaphore`], [`Striped`], [`Election`] and [`multi`] are names in it,
//!   and [`Changes`] shows what happens to them.
//! - [`Guard`] is a held lock: it says when it is [lost](Guard::lost), runs work [only while it is
//!   held](Guard::while_held), and has a fencing [token](Guard::token).
//! - Every held lock has a lease, renewed by the client's watchdog at a third of it: a dead holder's lock frees itself.
//!
//! **What a lock cannot do.** A process that is paused beyond its lease, or a request that was already sent, may still
//! act after another holds the lock. Only the fencing token, checked by the resource, protects against that.

mod acquire;
mod attempt;
mod belief;
#[cfg(feature = "blocking")]
pub mod blocking;
mod changes;
mod client;
mod connect;
mod drive;
mod election;
mod engine;
mod error;
pub mod fenced;
mod guard;
mod held;
mod line;
mod lines;
mod multi;
mod mutex;
mod options;
mod own_thread;
mod owner;
mod queue;
mod release;
mod rwlock;
mod scan;
mod seek;
mod semaphore;
mod settings;
mod store;
mod striped;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod timer;
mod verdict;
mod waiter;
mod want;
mod watchdog;

pub use acquire::Acquire;
pub use changes::{Change, Changes};
pub use client::Client;
pub use connect::{connect, connect_with, schema};
pub use election::{Election, Leader};
pub use error::{Error, Lost, LostCause};
pub use guard::Guard;
pub use multi::{Member, Multi, MultiGuard, multi};
pub use mutex::Mutex;
pub use owner::Owner;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use settings::Settings;
pub use striped::Striped;
pub use tenure_backend::{
    self as backend, Backend, BackendError, ClaimId, ClaimRef, Cursor, Effect, Evidence, Fairness, Fault,
    Fencing, FencingToken, Finding, Guarantee, Holder, HolderId, HolderStatus, Instant, Kind, LockKey,
    LockStatus, Mode, Page, Profile, Query, Severity, WaiterStatus,
};
pub use tenure_endpoint::{DurationError, StoreUrl, UrlError, parse_duration};
