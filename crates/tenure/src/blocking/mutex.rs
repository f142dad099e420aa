//! A lock that one thread of all clients' holds at a time.

use std::time::Duration;

use super::guard::Guard;
use super::options::face;
use super::runtime::Runtime;
use crate::error::Error;

/// A lock that one holds at a time, among all clients of the store: see [`tenure::Mutex`](crate::Mutex).
///
/// A second [`lock`](Mutex::lock) waits, also on the thread that has the first one, and then for ever: to nest, pass the
/// guard down, or use an [`Owner`](super::Owner).
///
/// # Panics
/// Every call that can wait panics on a thread that drives async tasks.
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
#[derive(Clone, Debug)]
pub struct Mutex {
    pub(super) inner: crate::Mutex,
    pub(super) runtime: Runtime,
}

face!(Mutex);

impl Mutex {
    /// Waits for the lock, for as long as it takes. Nothing ends the wait but [`Client::close`](super::Client::close):
    /// where that may be too long, use [`lock_within`](Mutex::lock_within).
    ///
    /// # Errors
    /// As [`Acquire`](crate::Acquire).
    pub fn lock(&self) -> Result<Guard, Error> {
        Guard::take(&self.runtime, self.inner.lock())
    }

    /// Waits for the lock for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`]; else as [`lock`](Mutex::lock).
    pub fn lock_within(&self, limit: Duration) -> Result<Guard, Error> {
        Guard::take(&self.runtime, self.inner.lock_within(limit))
    }

    /// Takes the lock if it is free; `None` if it is busy. Never waits for another holder.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock), and [`Error::Backend`] if the store does not answer.
    pub fn try_lock(&self) -> Result<Option<Guard>, Error> {
        Guard::try_take(&self.runtime, self.inner.try_lock())
    }

    /// Waits for the lock and runs `work` under it, on this thread.
    ///
    /// `work` is not stopped when the lock is lost: between steps, ask [`Guard::check`].
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock); [`Error::Lost`] if the lock was lost before `work` had finished: what it gave is dropped,
    /// and another may have worked at the same time. What `work` gave is returned even if the lock cannot be given
    /// back at once: the watchdog sees to that.
    pub fn with<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        run(self.lock()?, work)
    }

    /// Runs `work` under the lock, or `fallback` if it is not free within `limit` (zero: at once).
    ///
    /// The fallback runs only when the lock is busy or the wait timed out: never once `work` has begun, and never on a
    /// store's fault.
    ///
    /// # Errors
    /// As [`with`](Mutex::with), without `Timeout`.
    pub fn with_or_else<T>(
        &self,
        limit: Duration,
        work: impl FnOnce(&Guard) -> T,
        fallback: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        let got = if limit.is_zero() {
            self.try_lock()?
        } else {
            match self.lock_within(limit) {
                Ok(guard) => Some(guard),
                Err(Error::Timeout) => None,
                Err(error) => return Err(error),
            }
        };
        match got {
            Some(guard) => run(guard, work),
            None => Ok(fallback()),
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
