//! A lock of several permits, for threads.

use std::time::Duration;

use super::guard::Guard;
use super::options::face;
use super::runtime::Runtime;
use crate::error::Error;

/// A lock of several permits, of which each holder takes one or more: see [`tenure::Semaphore`](crate::Semaphore).
///
/// # Panics
/// Every call that can wait panics on a thread that drives async tasks.
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
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(super) inner: crate::Semaphore,
    pub(super) runtime: Runtime,
}

face!(Semaphore);

impl Semaphore {
    /// Waits for a permit, for as long as it takes.
    ///
    /// # Errors
    /// As [`Acquire`](crate::Acquire).
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.acquire_many(1)
    }

    /// Waits for `permits` at once, for as long as it takes. More than the semaphore has are
    /// [`Invalid`](Error::Invalid).
    ///
    /// # Errors
    /// As [`Acquire`](crate::Acquire).
    pub fn acquire_many(&self, permits: u32) -> Result<Guard, Error> {
        Guard::take(&self.runtime, self.inner.acquire_many(permits))
    }

    /// Waits for a permit for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`]; else as [`acquire`](Semaphore::acquire).
    pub fn acquire_within(&self, limit: Duration) -> Result<Guard, Error> {
        self.acquire_many_within(1, limit)
    }

    /// Waits for `permits` for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`]; else as [`acquire_many`](Semaphore::acquire_many).
    pub fn acquire_many_within(&self, permits: u32, limit: Duration) -> Result<Guard, Error> {
        Guard::take(&self.runtime, self.inner.acquire_many_within(permits, limit))
    }

    /// Takes a permit if one is free; `None` if it is busy.
    ///
    /// # Errors
    /// As [`acquire`](Semaphore::acquire), and [`Error::Backend`] if the store does not answer.
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire_many(1)
    }

    /// Takes `permits` if so many are free; `None` if it is busy.
    ///
    /// # Errors
    /// As [`try_acquire`](Semaphore::try_acquire).
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<Guard>, Error> {
        Guard::try_take(&self.runtime, self.inner.try_acquire_many(permits))
    }
}
