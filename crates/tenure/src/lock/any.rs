//! One lock of any kind, in one mode.

use std::time::Duration;

use crate::acquire::Acquire;
use crate::engine::attempt::Patience;
use crate::guard::Guard;
use crate::lock::mutex::Mutex;
use crate::lock::options::LockHandle;
use crate::lock::scope::scoped;

/// One lock of any kind, in a fixed mode.
///
/// A `Lock` is the read or write side of a [`RwLock`](crate::RwLock) ([`reader`](crate::RwLock::reader),
/// [`writer`](crate::RwLock::writer)), some permits of a [`Semaphore`](crate::Semaphore)
/// ([`permits`](crate::Semaphore::permits)), or a [`Mutex`]. Use it for functions that accept any kind of lock;
/// [`multi`](crate::multi) accepts several. It contains no data and does no I/O.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let catalogue = client.rwlock("catalogue");
/// let entries = catalogue.reader().with(async |_guard| 12).await?;
/// assert_eq!(entries, 12);
/// catalogue.writer().with(async |guard| println!("fenced by {:?}", guard.token())).await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is locked"]
pub struct Lock(pub(crate) LockHandle);

scoped!(Lock -> Guard by lock, lock_within);

impl Lock {
    /// Waits for the lock, for as long as it takes, or for [`Settings::lock_limit`](crate::Settings::lock_limit).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn lock(&self) -> Acquire<Guard> {
        self.0.lock_by_default()
    }

    /// Waits for the lock for at most `limit`; then [`Error::Timeout`](crate::Error::Timeout).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn lock_within(&self, limit: Duration) -> Acquire<Guard> {
        self.0.lock(Patience::Within(limit))
    }

    /// Acquires the lock if it is free; `None` if it is busy. Waits for the answer of the store, as
    /// [`Mutex::try_lock`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn try_lock(&self) -> Acquire<Option<Guard>> {
        self.0.try_lock()
    }
}

impl From<Mutex> for Lock {
    fn from(mutex: Mutex) -> Self {
        Lock(mutex.0)
    }
}

impl From<&Mutex> for Lock {
    fn from(mutex: &Mutex) -> Self {
        Lock(mutex.0.clone())
    }
}

impl From<&Lock> for Lock {
    fn from(lock: &Lock) -> Self {
        lock.clone()
    }
}
