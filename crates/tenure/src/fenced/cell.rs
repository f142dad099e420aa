//! A fenced value in memory, for tests and for resources that live in one process.

use std::fmt;

use parking_lot::Mutex;
use tenure_backend::FencingToken;

use super::stale::Stale;

/// A value that refuses a write whose token is older than that of an earlier write.
///
/// Does in memory what `WHERE fence <= ?` does in a database, atomically. It fences only writers of this process: share
/// it by `Arc` between tasks that stand for several services. Equal tokens are accepted: one holder may write often,
/// and concurrent readers may share a token.
///
/// # Examples
/// ```
/// use tenure::FencingToken;
/// use tenure::fenced::FencedCell;
///
/// let (old, new) = (FencingToken::new(6).unwrap(), FencingToken::new(7).unwrap());
/// let balance = FencedCell::new(0);
/// balance.write(new, 100)?;
/// assert!(balance.write(old, 1).is_err());
/// assert_eq!(balance.read(), 100);
/// # Ok::<(), tenure::fenced::Stale>(())
/// ```
#[derive(Default)]
pub struct FencedCell<T>(Mutex<Inner<T>>);

#[derive(Default)]
struct Inner<T> {
    newest: Option<FencingToken>,
    value: T,
}

impl<T> FencedCell<T> {
    /// Creates a value that no token has written: its first write may have any token.
    pub fn new(value: T) -> Self {
        FencedCell(Mutex::new(Inner { newest: None, value }))
    }

    /// Replaces the value.
    ///
    /// # Errors
    /// [`Stale`] if a newer token has written; the value stays.
    pub fn write(&self, token: FencingToken, value: T) -> Result<(), Stale> {
        self.update(token, |old| *old = value)
    }

    /// Changes the value in place, atomically: all other reads and writes wait. `change` must not use the cell.
    ///
    /// # Errors
    /// [`Stale`] if a newer token has written; `change` is not run.
    pub fn update<R>(&self, token: FencingToken, change: impl FnOnce(&mut T) -> R) -> Result<R, Stale> {
        let mut inner = self.0.lock();
        if inner.newest > Some(token) {
            return Err(Stale { newest: inner.newest });
        }
        inner.newest = Some(token);
        Ok(change(&mut inner.value))
    }

    /// The current value. Reading needs no token.
    pub fn read(&self) -> T
    where
        T: Clone,
    {
        self.0.lock().value.clone()
    }

    /// The greatest token that has written; `None` before the first write.
    pub fn newest(&self) -> Option<FencingToken> {
        self.0.lock().newest
    }
}

impl<T: fmt::Debug> fmt::Debug for FencedCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.0.lock();
        f.debug_struct("FencedCell")
            .field("newest", &inner.newest)
            .field("value", &inner.value)
            .finish()
    }
}
