//! What changes among a store's locks, for threads. Not here: a single look, which is
//! [`Client::inspect`](super::Client::inspect).

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;

use super::runtime::Runtime;
use crate::changes::Change;
use crate::error::Error;

/// The changes among the locks of a store, one after the other: see [`tenure::Changes`](crate::Changes).
///
/// An iterator that waits for the next change, and ends after an error only.
///
/// # Errors
/// An item is an error when the watch cannot go on: those of [`tenure::Changes::next`](crate::Changes::next). Threads that
/// wait are answered [`Error::Closed`] when the client is closed.
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
#[must_use = "nothing is watched until the next change is asked for"]
pub struct Changes {
    // Goes first: it may be the last of the client.
    inner: crate::Changes,
    runtime: Runtime,
}

impl Changes {
    pub(super) fn new(inner: crate::Changes, runtime: &Runtime) -> Self {
        let runtime = runtime.clone();
        Changes { inner, runtime }
    }

    fn map(self, change: impl FnOnce(crate::Changes) -> crate::Changes) -> Self {
        let Changes { inner, runtime } = self;
        let inner = change(inner);
        Changes { inner, runtime }
    }

    /// Sets how long it rests between two looks: 1 s by default, which costs a store little; at least 1 ms.
    pub fn every(self, interval: Duration) -> Self {
        self.map(|inner| inner.every(interval))
    }

    /// Sets how many keys it keeps in mind: 100,000 by default, some hundred bytes each. More end it with
    /// [`Error::Limit`].
    pub fn limit(self, keys: usize) -> Self {
        self.map(|inner| inner.limit(keys))
    }

    /// Waits for the next change for at most `limit`; `None` if there was none. Loses no change: the next call gives it.
    ///
    /// # Errors
    /// As the items'. Called again, it looks again.
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<Change>, Error> {
        let Changes { inner, runtime } = self;
        runtime.block_within(limit, inner.next()).transpose()
    }
}

impl Iterator for Changes {
    type Item = Result<Change, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let Changes { inner, runtime } = self;
        runtime.block_on(StreamExt::next(inner))
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
