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
//! - A [`Client`] is connected to one store and creates the locks: [`Mutex`], [`RwLock`], [`Semaphore`], [`Striped`]
//!   and [`Election`]. [`multi`] acquires several locks together, and [`Changes`] watches them.
//! - A [`Guard`] is a held lock. It reports when the lock is [lost](Guard::lost), runs work [only while the lock is
//!   held](Guard::while_held), and has a fencing [token](Guard::token).
//! - Every held lock has a lease, which the client's watchdog renews after a third of its length, unless it is
//!   [fixed](Mutex::fixed_lease). The lock of a dead holder becomes free when the lease ends.
//!
//! **What a lock cannot do.** A process that is paused for longer than its lease, or a request that was already sent,
//! may still act after another client has acquired the lock. Only a fencing token that the resource checks protects
//! against that.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `memory` | yes | the store `memory:`, in this process |
//! | `sqlite` | | the store `sqlite:`, with the system's SQLite (3.45.3 or later; 3.34.1 with rusqlite 0.39) |
//! | `sqlite-bundled` | | `sqlite` with a SQLite that is compiled in, which needs a C compiler |
//! | `redis` | | the store `redis:` |
//! | `quorum` | | `redis`, and the store `redlock:`: a majority of several Redis servers |
//! | `postgres`, `mysql` | | the stores `postgres:`, and `mysql:` and `mariadb:` |
//! | `etcd` | | the store `etcd:` |
//! | `zookeeper` | | the store `zookeeper:` |
//! | `tls` | | with `redis`: the store `rediss:`; with `quorum`: `redlocks:`; with `etcd`: `etcds:`; with `zookeeper`: `zookeepers:`; encrypted connections to databases |
//! | `metrics` | yes | the [metrics](telemetry) of each client; without it nothing is recorded |
//! | `serde` | | `Serialize` for what [`inspect`], [`Changes`] and [`Client::profile`] return, in the shape of the command's `--json`; `Deserialize` too for names, tokens, findings and the enums of a [`Profile`] |
//! | `blocking` | | the module `blocking`: the API without async |
//! | `testing` | | the module `testing`: a store, a clock and losses for your own tests |

/// A store's locks, and findings about what weakens them, for people and tools.
///
/// [`Client::inspect`] takes a [`Query`](inspect::Query) and returns a [`Page`](inspect::Page) of locks;
/// [`Client::examine`] returns [`Finding`](inspect::Finding)s. The answers may be out of date at once: do not use them
/// to decide whether a lock is held.
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
#[cfg(feature = "etcd")]
pub use connect::etcd;
#[cfg(feature = "redis")]
pub use connect::redis;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub use connect::sql;
#[cfg(feature = "zookeeper")]
pub use connect::zookeeper;
pub use connect::{connect, connect_with, create_schema, schema};
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
/// The contract between the engine and its stores, for authors of backends.
pub use tenure_backend as backend;
pub use tenure_backend::{
    BackendError, ClaimId, ClaimRef, Effect, Fault, FencingToken, Guarantee, HolderId, Instant, InvalidKey,
    InvalidToken, Kind, LockKey, Mode, Profile, ReleaseTarget,
};
pub use tenure_endpoint::{InvalidDuration, InvalidUrl, StoreUrl, parse_duration};
