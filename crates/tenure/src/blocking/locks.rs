//! The locks: each is a key and options, without state.

use std::time::Duration;

use super::adapter::{Blocking, blocking};
use super::guard::Guard;
use super::scope::scoped;
use crate::lock::options::{Configure, options};

/// A lock with one holder at a time among all clients of the store: see [`tenure::Mutex`](crate::Mutex).
///
/// A `Mutex` is not reentrant: a second `lock` on the thread that holds the guard waits for that guard. To nest, pass
/// the guard down, or use an [`Owner`](super::Owner). Only `Client::close` can interrupt a wait without a limit.
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
scoped!(Mutex -> Guard by lock, lock_within);
blocking!(Mutex waits {
    lock() -> Guard;
    lock_within(limit: Duration) -> Guard;
    try_lock() -> Option<Guard>;
});

impl Mutex {
    /// Keeps the claim in this client for `time` after an unlock: see [`tenure::Mutex::linger`](crate::Mutex::linger).
    pub fn linger(self, time: Duration) -> Self {
        Configure::set(self, |options| options.linger = time)
    }
}

/// One lock of any kind, in a fixed mode: see [`tenure::Lock`](crate::Lock).
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let client = tenure::blocking::connect("memory:")?;
/// let catalogue = client.rwlock("catalogue");
/// let entries = catalogue.reader().with(|_guard| 12)?;
/// assert_eq!(entries, 12);
/// # Ok(()) }
/// ```
pub type Lock = Blocking<crate::Lock>;

scoped!(Lock -> Guard by lock, lock_within);
blocking!(Lock waits {
    lock() -> Guard;
    lock_within(limit: Duration) -> Guard;
    try_lock() -> Option<Guard>;
});

impl From<Mutex> for Lock {
    fn from(mutex: Mutex) -> Self {
        mutex.change(Into::into)
    }
}

impl From<&Mutex> for Lock {
    fn from(mutex: &Mutex) -> Self {
        mutex.sibling((&mutex.inner).into())
    }
}

impl From<&Lock> for Lock {
    fn from(lock: &Lock) -> Self {
        lock.clone()
    }
}

/// A lock for many readers or one writer, among all clients of the store: see [`tenure::RwLock`](crate::RwLock).
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
blocking!(RwLock makes {
    reader() -> Lock;
    writer() -> Lock;
} waits {
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
scoped!(Semaphore -> Guard by acquire, acquire_within);
blocking!(Semaphore makes {
    permits(permits: u32) -> Lock;
} waits {
    acquire() -> Guard;
    acquire_many(permits: u32) -> Guard;
    acquire_within(limit: Duration) -> Guard;
    acquire_many_within(permits: u32, limit: Duration) -> Guard;
    try_acquire() -> Option<Guard>;
    try_acquire_many(permits: u32) -> Option<Guard>;
});

/// A fixed number of mutexes for any number of names: see [`tenure::Striped`](crate::Striped). A name has the same
/// stripe as in the async API.
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
    /// The mutex for `name`. Its key is `key#stripe`, such as `carts#7`.
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Mutex {
        self.sibling(self.inner.mutex(name).clone())
    }

    /// All mutexes, from stripe 0 on. To acquire any free one, try them one after the other.
    pub fn stripes(&self) -> impl ExactSizeIterator<Item = Mutex> {
        let all = self.inner.stripes().iter();
        all.map(|stripe| self.sibling(stripe.clone()))
    }
}
