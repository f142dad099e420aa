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
#[cfg(feature = "blocking")]
pub mod blocking;
mod changes;
mod client;
mod connect;
mod engine;
mod error;
pub mod fenced;
mod guard;
mod lock;
mod settings;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;

pub use acquire::Acquire;
pub use changes::{Change, Changes};
pub use client::Client;
pub use connect::{connect, connect_with, schema};
pub use engine::owner::Owner;
pub use error::{Error, Lost, LostCause};
pub use guard::Guard;
pub use lock::any::Lock;
pub use lock::election::{Election, Leader};
pub use lock::multi::{Multi, MultiGuard, multi};
pub use lock::mutex::Mutex;
pub use lock::rwlock::RwLock;
pub use lock::semaphore::Semaphore;
pub use lock::striped::Striped;
pub use settings::Settings;
pub use tenure_backend::{
    self as backend, Backend, BackendError, ClaimId, ClaimRef, Cursor, Effect, Evidence, Fairness, Fault,
    Fencing, FencingToken, Finding, Guarantee, HolderId, HolderStatus, Instant, Kind, LockKey, LockStatus,
    Mode, Page, Profile, Query, ReleaseTarget, Severity, WaiterStatus,
};
pub use tenure_endpoint::{DurationError, StoreUrl, UrlError, parse_duration};
