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

/// What people and tools see of a store: its locks, and what weakens them.
///
/// [`Client::inspect`] takes a [`Query`](inspect::Query) and returns a [`Page`](inspect::Page) of locks;
/// [`Client::examine`] returns [`Finding`](inspect::Finding)s. Never decide by them who holds a lock.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::inspect::Query;
///
/// let client = tenure::connect("memory:").await?;
/// let guard = client.mutex("invoice:7").lock().await?;
/// let page = client.inspect(Query::Key(guard.key().clone())).await?;
/// assert_eq!(page.items[0].holders[0].token, guard.token());
/// # Ok(()) }
/// ```
pub mod inspect {
    pub use tenure_backend::{
        Cursor, Finding, HolderStatus, LockStatus, Page, Query, Severity, WaiterStatus,
    };
}

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
#[cfg(feature = "redis")]
pub use connect::redis;
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
/// The contract between the engine and stores, for authors of stores.
pub use tenure_backend as backend;
pub use tenure_backend::{
    BackendError, ClaimId, ClaimRef, Effect, Fault, FencingToken, Guarantee, HolderId, Instant, InvalidKey,
    InvalidToken, Kind, LockKey, Mode, Profile, ReleaseTarget,
};
pub use tenure_endpoint::{DurationError, StoreUrl, UrlError, parse_duration};
