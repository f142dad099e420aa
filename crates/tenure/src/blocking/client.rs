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

/// A client of one store. Cheap to clone: all clones are the same client and share one watchdog and one thread.
///
/// After the last clone, lock and guard is dropped, the thread releases the remaining claims in the background and
/// ends. Call `close` before the process exits, to wait for these releases.
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

/// Connects to the store at `url`, with default settings.
///
/// # Errors
/// Those of [`tenure::connect`](crate::connect); [`Error::Closed`] if the system cannot start a thread.
pub fn connect(url: &str) -> Result<Client, Error> {
    connect_with(url, Settings::default())
}

/// Connects to the store at `url`. A failed connection is not retried.
///
/// Ignores [`Settings::own_thread`]: a blocking client always has its own thread.
///
/// # Errors
/// Those of [`connect`].
pub fn connect_with(url: &str, settings: Settings) -> Result<Client, Error> {
    let runtime = Runtime::start()?;
    let inner = runtime.block_on(crate::connect_with(url, settings.own_thread(false)))?;
    Client::on(runtime, inner)
}

impl Client {
    /// Creates a client of your own backend.
    ///
    /// # Errors
    /// [`Error::Closed`] if the system cannot start a thread.
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
