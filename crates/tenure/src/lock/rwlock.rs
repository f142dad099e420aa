//! A lock for many readers or one writer.

use std::time::Duration;

use tenure_backend::Mode;

use crate::acquire::Acquire;
use crate::guard::Guard;
use crate::lock::any::Lock;
use crate::lock::options::{LockHandle, options};

/// A lock for many readers or one writer, among all clients of the store.
///
/// By default, a writer may wait as long as new readers keep arriving. With [`fair`](RwLock::fair), readers and writers
/// are served in order of arrival. To run work under one side, see [`reader`](RwLock::reader) and
/// [`writer`](RwLock::writer). [`Guard::downgrade`] turns a held write lock into a read lock.
///
/// Readers of one client that waited together may share one claim: listings show it as one holder, and its eviction ends
/// all of them.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let lock = client.rwlock("catalogue");
/// let (one, two) = (lock.read().await?, lock.read().await?);
/// assert!(lock.try_write().await?.is_none());
/// # drop((one, two)); Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is locked"]
pub struct RwLock(pub(crate) LockHandle);

options!(RwLock);

impl RwLock {
    /// The read side, as a lock of its own: for [`with`](Lock::with) and [`multi`](crate::multi).
    pub fn reader(&self) -> Lock {
        Lock(self.0.with_mode(Mode::Read))
    }

    /// The write side, as a lock of its own: for [`with`](Lock::with) and [`multi`](crate::multi).
    pub fn writer(&self) -> Lock {
        Lock(self.0.with_mode(Mode::Write))
    }

    /// Waits for the read lock, for as long as it takes, or for [`Settings::lock_limit`](crate::Settings::lock_limit).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn read(&self) -> Acquire<Guard> {
        self.reader().lock()
    }

    /// Waits for the read lock for at most `limit`; then [`Error::Timeout`](crate::Error::Timeout).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn read_within(&self, limit: Duration) -> Acquire<Guard> {
        self.reader().lock_within(limit)
    }

    /// Acquires the read lock if that is possible at once; `None` if it is busy. Waits for the answer of the store, as
    /// [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn try_read(&self) -> Acquire<Option<Guard>> {
        self.reader().try_lock()
    }

    /// Waits for the write lock, for as long as it takes, or for [`Settings::lock_limit`](crate::Settings::lock_limit).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn write(&self) -> Acquire<Guard> {
        self.writer().lock()
    }

    /// Waits for the write lock for at most `limit`; then [`Error::Timeout`](crate::Error::Timeout).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn write_within(&self, limit: Duration) -> Acquire<Guard> {
        self.writer().lock_within(limit)
    }

    /// Acquires the write lock if that is possible at once; `None` if it is busy. Waits for the answer of the store, as
    /// [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn try_write(&self) -> Acquire<Option<Guard>> {
        self.writer().try_lock()
    }
}
