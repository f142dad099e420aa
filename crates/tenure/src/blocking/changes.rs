//! An iterator over the changes to a store's locks, for threads.

use std::time::Duration;

use futures_util::StreamExt;

use super::adapter::{Blocking, blocking};
use crate::changes::Change;
use crate::error::Error;

/// The changes to the locks of a store, one after the other: see [`tenure::Changes`](crate::Changes).
///
/// The iterator waits for the next change, and ends only after an error.
///
/// # Errors
/// An item is an error of [`tenure::Changes::next`](crate::Changes::next) if the watch cannot continue. Waiting threads
/// get [`Error::Closed`] when the client is closed.
///
/// # Panics
/// Asking for the next change panics on a thread that drives async tasks.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// use tenure::Change;
///
/// let client = tenure::blocking::connect("memory:")?;
/// let _guard = client.mutex("invoice:7").lock()?;
/// for change in client.watch("invoice:") {
///     if let Change::Held(status) = change? {
///         assert_eq!(status.key.as_str(), "invoice:7");
///         break;
///     }
/// }
/// # Ok(()) }
/// ```
pub type Changes = Blocking<crate::Changes>;

blocking!(Changes sets {
    every(interval: Duration);
    limit(keys: usize);
});

impl Changes {
    /// Waits at most `limit` for the next change; `None` if none came. A change that comes later is returned by the
    /// next call.
    ///
    /// # Errors
    /// Those of the iterator's items. After an error, the next call scans the store again.
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<Change>, Error> {
        let next = self.inner.next();
        self.runtime.block_within(limit, next).transpose()
    }
}

impl Iterator for Changes {
    type Item = Result<Change, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.runtime.block_on(StreamExt::next(&mut self.inner))
    }
}
