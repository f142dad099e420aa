//! The locks: a name and options each, no state.

use std::time::Duration;

use super::adapter::{Blocking, blocking};
use super::guard::Guard;
use crate::error::Error;
use crate::lock::options::{Configure, options};

/// A lock that one holds at a time, among all clients of the store: see [`tenure::Mutex`](crate::Mutex).
///
/// A second `lock` waits, also on the thread that has the first one, and then for ever: to nest, pass the guard down, or use
/// an [`Owner`](super::Owner). Only `Client::close` ends a wait without a limit.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let client = tenure::blocking::connect("memory:")?;
/// let mutex = client.mutex("stock:shoes");
/// let guard = mutex.lock()?;
/// assert!(mutex.try_lock()?.is_none());
/// guard.unlock()?;
/// # Ok(()) }
/// ```
pub type Mutex = Blocking<crate::Mutex>;

options!(for Mutex);
blocking!(Mutex waits {
    lock() -> Guard;
    lock_within(limit: Duration) -> Guard;
    try_lock() -> Option<Guard>;
});

impl Mutex {
    /// Keeps the lock in this client's memory for that time after an unlock: see
    /// [`tenure::Mutex::linger`](crate::Mutex::linger).
    pub fn linger(self, time: Duration) -> Self {
        Configure::set(self, |options| options.linger = time)
    }

    /// Waits for the lock and runs `work` under it, on this thread.
    ///
    /// `work` is not stopped when the lock is lost: between steps, ask `Guard::check`. What it gave is returned even if the
    /// lock cannot be given back at once: the watchdog sees to that.
    ///
    /// # Errors
    /// As `lock`; [`Error::Lost`] if the lock was lost before `work` had finished: what it gave is dropped, and another may
    /// have worked at the same time.
    pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        run(self.lock()?, work)
    }

    /// Runs `work` under the lock, or `fallback` if it is not free within `limit` (zero: at once).
    ///
    /// The fallback runs only when the lock is busy or the wait timed out: never once `work` has begun, and never on a
    /// store's fault.
    ///
    /// # Errors
    /// As `with`, without `Timeout`.
    pub fn with_or_else<T>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Guard) -> T,
        fallback: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        match self.lock_within(limit) {
            Ok(guard) => run(guard, work),
            Err(Error::Timeout) => Ok(fallback()),
            Err(error) => Err(error),
        }
    }
}

fn run<T>(guard: Guard, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
    let output = guard.while_held(work)?;
    if let Err(error) = guard.unlock() {
        tracing::warn!(%error, "work was done under a lock that could not be given back in order");
    }
    Ok(output)
}

/// A lock that many readers share and one writer holds alone, among all clients of the store: see
/// [`tenure::RwLock`](crate::RwLock).
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let client = tenure::blocking::connect("memory:")?;
/// let lock = client.rwlock("catalogue");
/// let (one, two) = (lock.read()?, lock.read()?);
/// assert!(lock.try_write()?.is_none());
/// # drop((one, two)); Ok(()) }
/// ```
pub type RwLock = Blocking<crate::RwLock>;

options!(for RwLock);
blocking!(RwLock waits {
    read() -> Guard;
    read_within(limit: Duration) -> Guard;
    try_read() -> Option<Guard>;
    write() -> Guard;
    write_within(limit: Duration) -> Guard;
    try_write() -> Option<Guard>;
});

/// A lock of several permits, of which each holder takes one or more: see [`tenure::Semaphore`](crate::Semaphore).
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let client = tenure::blocking::connect("memory:")?;
/// let downloads = client.semaphore("downloads", 3);
/// let two = downloads.acquire_many(2)?;
/// assert!(downloads.try_acquire_many(2)?.is_none());
/// # drop(two); Ok(()) }
/// ```
pub type Semaphore = Blocking<crate::Semaphore>;

options!(for Semaphore);
blocking!(Semaphore waits {
    acquire() -> Guard;
    acquire_many(permits: u32) -> Guard;
    acquire_within(limit: Duration) -> Guard;
    acquire_many_within(permits: u32, limit: Duration) -> Guard;
    try_acquire() -> Option<Guard>;
    try_acquire_many(permits: u32) -> Option<Guard>;
});

/// A fixed number of mutexes that stand for any number of names: see [`tenure::Striped`](crate::Striped). A name has the
/// same stripe here and there.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let client = tenure::blocking::connect("memory:")?;
/// let carts = client.striped("carts", 64);
/// let guard = carts.mutex("customer 4711").lock()?;
/// # drop(guard); Ok(()) }
/// ```
pub type Striped = Blocking<crate::Striped>;

impl Striped {
    /// The mutex that stands for `name`: `key#stripe`.
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Mutex {
        self.beside(self.inner.mutex(name).clone())
    }

    /// All mutexes, in order: to take any one that is free, try them one after the other.
    pub fn stripes(&self) -> impl ExactSizeIterator<Item = Mutex> {
        let all = self.inner.stripes().iter();
        all.map(|stripe| self.beside(stripe.clone()))
    }
}
