//! A lock that one holds at a time.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::Mode;

use crate::acquire::Acquire;
use crate::engine::Engine;
use crate::engine::attempt::Patience;
use crate::guard::Guard;
use crate::lock::options::{Configure, LockHandle, options};
use crate::lock::scope::scoped;

/// A lock that one holds at a time, among all clients of the store.
///
/// It holds no data and does no I/O: it is a name and some options, cheap to clone. A second
/// [`lock`](Mutex::lock) waits, whoever asks: to nest, pass the guard down, or use an [`Owner`](crate::Owner).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// let client = tenure::connect("memory:").await?;
/// let mutex = client.mutex("stock:shoes");
/// let guard = mutex.lock().await?;
/// assert!(mutex.try_lock().await?.is_none());
/// guard.unlock().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is locked"]
pub struct Mutex(pub(crate) LockHandle);

options!(Mutex);
scoped!(Mutex -> Guard by lock, lock_within);

impl Mutex {
    pub(crate) fn new(engine: &Arc<Engine>, key: &str) -> Self {
        Mutex(LockHandle::new(engine, key, Mode::Exclusive))
    }

    /// Keeps the lock in this client's memory for that time after an unlock for which no local task waits, so that the next
    /// local `lock` needs no call to the store. Zero by default, at most 10 ms.
    ///
    /// For one task that takes a lock again and again. The claim is kept for 10 ms after its grant at the most, with one
    /// token for each `lock`. [`unlock`](Guard::unlock) returns before the lock is free in the store: other clients wait for
    /// that much longer, and their `try_lock` may find it busy. It has no effect on fair locks, fixed leases, and locks with
    /// an owner, `max_hold` or `at_least`, and none while another client is known to wait.
    pub fn linger(self, time: Duration) -> Self {
        Configure::set(self, |options| options.linger = time)
    }

    /// Waits for the lock, for as long as it takes.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping the future leaves nothing behind.
    pub fn lock(&self) -> Acquire<Guard> {
        self.0.lock(Patience::Forever)
    }

    /// Waits for the lock for at most `limit`; then [`Error::Timeout`](crate::Error::Timeout).
    ///
    /// A limit of zero takes the lock if it is free, as [`try_lock`](Mutex::try_lock) does.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping the future leaves nothing behind, and neither does the time limit.
    #[doc(alias = "timeout")]
    pub fn lock_within(&self, limit: Duration) -> Acquire<Guard> {
        self.0.lock(Patience::Within(limit))
    }

    /// Takes the lock if it is free; `None` if it is busy. Never waits for another holder.
    ///
    /// A guard that was just dropped may still count, until the store has its lock back: `unlock().await` before.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping the future leaves nothing behind.
    #[doc(alias = "nonblocking")]
    pub fn try_lock(&self) -> Acquire<Option<Guard>> {
        self.0.try_lock()
    }
}
