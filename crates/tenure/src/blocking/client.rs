//! A client of one store, for threads.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Finding, Guarantee, Holder, HolderId, LockStatus, Page, Profile, Query};

use super::changes::Changes;
use super::election::Election;
use super::mutex::Mutex;
use super::runtime::Runtime;
use super::rwlock::RwLock;
use super::semaphore::Semaphore;
use super::striped::Striped;
use crate::error::Error;
use crate::owner::Owner;
use crate::settings::Settings;

/// A client of one store. Clone it freely: clones are the same client, with one watchdog and one thread.
///
/// When the last clone, lock and guard of it has gone, its thread gives back what is left, and ends; nobody waits for
/// that. Where the process ends at once, [`close`](Client::close) it.
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
#[derive(Clone, Debug)]
pub struct Client {
    // Goes first: its thread then finds nobody else in the client.
    pub(crate) inner: crate::Client,
    pub(crate) runtime: Runtime,
}

/// Connects to the store that `url` names, with default settings.
///
/// # Errors
/// As [`tenure::connect`](crate::connect); [`Error::Closed`] if the system gives no thread.
///
/// # Panics
/// On a thread that drives async tasks.
pub fn connect(url: &str) -> Result<Client, Error> {
    connect_with(url, Settings::default())
}

/// Connects to the store that `url` names. The store is tried once.
///
/// [`Settings::own_thread`] says nothing here: the client has a thread of its own in any case.
///
/// # Errors
/// As [`connect`].
///
/// # Panics
/// On a thread that drives async tasks.
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
        Ok(Client { inner, runtime })
    }

    /// A lock that one holds at a time. No I/O; a bad key is [`Error::Invalid`] at first use.
    pub fn mutex(&self, key: impl AsRef<str>) -> Mutex {
        Mutex::new(self.inner.mutex(key), &self.runtime)
    }

    /// A lock that many readers share and one writer holds alone. No I/O.
    pub fn rwlock(&self, key: impl AsRef<str>) -> RwLock {
        RwLock::new(self.inner.rwlock(key), &self.runtime)
    }

    /// A lock of `of` permits. No I/O.
    pub fn semaphore(&self, key: impl AsRef<str>, of: u32) -> Semaphore {
        Semaphore::new(self.inner.semaphore(key, of), &self.runtime)
    }

    /// Any number of names on `stripes` mutexes (at least one), called `key#0`, `key#1` and so on. No I/O.
    ///
    /// # Panics
    /// Above [`Striped::MOST`](crate::Striped::MOST) stripes.
    pub fn striped(&self, key: impl AsRef<str>, stripes: usize) -> Striped {
        Striped::new(self.inner.striped(key, stripes), &self.runtime)
    }

    /// An owner, on whose behalf locks can be nested. Two owners are never the same, whatever their names.
    ///
    /// It is a value and no thread: clone it to the threads that act on its behalf.
    pub fn owner(&self, name: impl AsRef<str>) -> Owner {
        self.inner.owner(name)
    }

    /// An election: of all that campaign for `name`, one leads at a time. No I/O.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.inner.election(name), &self.runtime)
    }

    /// Watches all keys that begin with `prefix`, by a look at the store once a second. No I/O until it is asked.
    pub fn watch(&self, prefix: impl AsRef<str>) -> Changes {
        Changes::new(self.inner.watch(prefix), &self.runtime)
    }

    /// What the store promises, and what it cannot do.
    pub fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    /// Demands a guarantee of the store, so that a program refuses to start on one that is too weak for it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the store does not give it.
    pub fn require(&self, guarantee: Guarantee) -> Result<(), Error> {
        self.inner.require(guarantee)
    }

    /// What people and tools see of locks. Never decide by it who holds one.
    ///
    /// # Errors
    /// [`Error::Backend`], [`Error::Unsupported`], [`Error::Closed`].
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn inspect(&self, query: Query) -> Result<Page<LockStatus>, Error> {
        self.runtime.block_on(self.inner.inspect(query))
    }

    /// Takes locks away from their holders, foreign ones too; answers who was freed. See
    /// [`tenure::Client::evict`](crate::Client::evict).
    ///
    /// # Errors
    /// [`Error::Backend`], [`Error::Unsupported`], [`Error::Closed`].
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn evict(&self, holder: Holder) -> Result<Vec<HolderId>, Error> {
        self.runtime.block_on(self.inner.evict(holder))
    }

    /// Everything about the store that weakens its locks.
    ///
    /// # Errors
    /// [`Error::Backend`], [`Error::Closed`].
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.runtime.block_on(self.inner.examine())
    }

    /// Gives every lock and every waiting claim of this client back, waits until that is confirmed, and disconnects.
    ///
    /// Call it last in `main`. Threads that wait for a lock are answered [`Error::Closed`], live guards are lost.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it was not all confirmed within `limit`; what is left ends with its lease. [`Error::Backend`]
    /// if the store could not be left.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn close(&self, limit: Duration) -> Result<(), Error> {
        self.runtime.block_on(self.inner.close(limit))
    }
}
