//! A lock that many readers share and one writer holds alone, for threads.

use std::time::Duration;

use super::guard::Guard;
use super::options::face;
use super::runtime::Runtime;
use crate::error::Error;

/// A lock that many readers share and one writer holds alone, among all clients of the store: see
/// [`tenure::RwLock`](crate::RwLock).
///
/// # Panics
/// Every call that can wait panics on a thread that drives async tasks.
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
#[derive(Clone, Debug)]
pub struct RwLock {
    pub(super) inner: crate::RwLock,
    pub(super) runtime: Runtime,
}

face!(RwLock);

impl RwLock {
    /// Waits to read, for as long as it takes.
    ///
    /// # Errors
    /// As [`Acquire`](crate::Acquire).
    pub fn read(&self) -> Result<Guard, Error> {
        Guard::take(&self.runtime, self.inner.read())
    }

    /// Waits to read for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`]; else as [`read`](RwLock::read).
    pub fn read_within(&self, limit: Duration) -> Result<Guard, Error> {
        Guard::take(&self.runtime, self.inner.read_within(limit))
    }

    /// Reads if that is possible at once; `None` if it is busy.
    ///
    /// # Errors
    /// As [`read`](RwLock::read), and [`Error::Backend`] if the store does not answer.
    pub fn try_read(&self) -> Result<Option<Guard>, Error> {
        Guard::try_take(&self.runtime, self.inner.try_read())
    }

    /// Waits to write, for as long as it takes.
    ///
    /// # Errors
    /// As [`Acquire`](crate::Acquire).
    pub fn write(&self) -> Result<Guard, Error> {
        Guard::take(&self.runtime, self.inner.write())
    }

    /// Waits to write for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`]; else as [`write`](RwLock::write).
    pub fn write_within(&self, limit: Duration) -> Result<Guard, Error> {
        Guard::take(&self.runtime, self.inner.write_within(limit))
    }

    /// Writes if that is possible at once; `None` if it is busy.
    ///
    /// # Errors
    /// As [`write`](RwLock::write), and [`Error::Backend`] if the store does not answer.
    pub fn try_write(&self) -> Result<Option<Guard>, Error> {
        Guard::try_take(&self.runtime, self.inner.try_write())
    }
}
