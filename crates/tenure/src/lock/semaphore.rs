//! A lock of several permits.

use std::time::Duration;

use crate::acquire::Acquire;
use crate::guard::Guard;
use crate::lock::any::Lock;
use crate::lock::options::{LockHandle, options};
use crate::lock::scope::scoped;

/// A lock of several permits, of which each holder takes one or more, among all clients of the store.
///
/// Permits are leased: those of a crashed holder become free when its lease ends. All users of a key must give the same
/// number of permits: while the key is in use, another number fails with [`Mismatch`](crate::Error::Mismatch).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let downloads = client.semaphore("downloads", 3);
/// let two = downloads.acquire_many(2).await?;
/// assert!(downloads.try_acquire_many(2).await?.is_none());
/// # drop(two); Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is locked"]
pub struct Semaphore(pub(crate) LockHandle);

options!(Semaphore);
scoped!(Semaphore -> Guard by acquire, acquire_within);

impl Semaphore {
    /// A [`Lock`] of `permits` permits, for [`with`](Lock::with) and [`multi`](crate::multi).
    ///
    /// Zero permits, or more than the semaphore has, are [`Invalid`](crate::Error::Invalid) at first use.
    pub fn permits(&self, permits: u32) -> Lock {
        Lock(self.0.taking(permits))
    }

    /// Waits for a permit, for as long as it takes, or for [`Settings::lock_limit`](crate::Settings::lock_limit).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn acquire(&self) -> Acquire<Guard> {
        self.acquire_many(1)
    }

    /// Waits until `permits` permits are free together, for as long as it takes, or for
    /// [`Settings::lock_limit`](crate::Settings::lock_limit). More permits than the semaphore has are
    /// [`Invalid`](crate::Error::Invalid).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn acquire_many(&self, permits: u32) -> Acquire<Guard> {
        self.permits(permits).lock()
    }

    /// Waits for `permits` permits for at most `limit`; then [`Error::Timeout`](crate::Error::Timeout).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn acquire_many_within(&self, permits: u32, limit: Duration) -> Acquire<Guard> {
        self.permits(permits).lock_within(limit)
    }

    /// Waits for a permit for at most `limit`; then [`Error::Timeout`](crate::Error::Timeout).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    #[doc(alias = "timeout")]
    pub fn acquire_within(&self, limit: Duration) -> Acquire<Guard> {
        self.acquire_many_within(1, limit)
    }

    /// Acquires a permit if one is free; `None` otherwise. Waits for the answer of the store, as
    /// [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn try_acquire(&self) -> Acquire<Option<Guard>> {
        self.try_acquire_many(1)
    }

    /// Acquires `permits` permits if they are free; `None` otherwise. Waits for the answer of the store, as
    /// [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub fn try_acquire_many(&self, permits: u32) -> Acquire<Option<Guard>> {
        self.permits(permits).try_lock()
    }
}
