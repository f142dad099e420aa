//! A client of one store, for threads.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Finding, HolderId, LockStatus, Page, Query, ReleaseTarget};

use super::adapter::{Blocking, blocking};
use super::changes::Changes;
use super::election::Election;
use super::locks::{Mutex, RwLock, Semaphore, Striped};
use super::runtime::Runtime;
use crate::error::Error;
use crate::settings::Settings;

/// A client of one store. Clone it freely: clones are the same client, with one watchdog and one thread.
///
/// When the last clone, lock and guard of it has gone, its thread gives back what is left, and ends; nobody waits for
/// that. Where the process ends at once, `close` it.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// use std::time::Duration;
///
/// let client = tenure::blocking::connect("memory:")?;
/// client.mutex("nightly").with(|_guard| println!("only one of us does this"))?;
/// client.close(Duration::from_secs(1))?;
/// # Ok(()) }
/// ```
pub type Client = Blocking<crate::Client>;

/// Connects to the store that `url` names, with default settings.
///
/// # Errors
/// As [`tenure::connect`](crate::connect); [`Error::Closed`] if the system gives no thread.
pub fn connect(url: &str) -> Result<Client, Error> {
    connect_with(url, Settings::default())
}

/// Connects to the store that `url` names. The store is tried once.
///
/// [`Settings::own_thread`] says nothing here: the client has a thread of its own in any case.
///
/// # Errors
/// As [`connect`].
pub fn connect_with(url: &str, settings: Settings) -> Result<Client, Error> {
    let runtime = Runtime::start()?;
    let inner = runtime.block_on(crate::connect_with(url, settings.own_thread(false)))?;
    Client::on(runtime, inner)
}

impl Client {
    /// A client of your own backend.
    ///
    /// # Errors
    /// [`Error::Closed`] if the system gives no thread.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Result<Client, Error> {
        let inner = crate::Client::new(backend, settings.own_thread(false));
        Self::on(Runtime::start()?, inner)
    }

    pub(crate) fn on(runtime: Runtime, inner: crate::Client) -> Result<Client, Error> {
        runtime.adopt(&inner)?;
        Ok(Blocking { inner, runtime })
    }
}

blocking!(Client
    makes {
        mutex(key: impl AsRef<str>) -> Mutex;
        rwlock(key: impl AsRef<str>) -> RwLock;
        semaphore(key: impl AsRef<str>, of: u32) -> Semaphore;
        striped(key: impl AsRef<str>, stripes: usize) -> Striped;
        election(name: impl AsRef<str>) -> Election;
        watch(prefix: impl AsRef<str>) -> Changes;
    }
    waits {
        inspect(query: Query) -> Page<LockStatus>;
        evict(holder: ReleaseTarget) -> Vec<HolderId>;
        examine() -> Vec<Finding>;
        close(limit: Duration) -> ();
    }
);
