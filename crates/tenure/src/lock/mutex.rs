//! A lock that one holds at a time.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::Mode;

use crate::acquire::Acquire;
use crate::engine::Engine;
use crate::engine::attempt::Patience;
use crate::error::Error;
use crate::guard::Guard;
use crate::lock::options::{Configure, LockHandle, options};

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
    pub fn lock_within(&self, limit: Duration) -> Acquire<Guard> {
        self.0.lock(Patience::Within(limit))
    }

    /// Takes the lock if it is free; `None` if it is busy. Never waits for another holder.
    ///
    /// A guard that was just dropped may still count, until the store has its lock back: `unlock().await` before.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping the future leaves nothing behind.
    pub fn try_lock(&self) -> Acquire<Option<Guard>> {
        self.0.try_lock()
    }

    /// Waits for the lock and runs `work` under it, for as long as it is held.
    ///
    /// In a web handler, run it in a task of its own: a handler's future is dropped when its client goes away, and with it
    /// `work`, wherever it is.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and gives the lock back.
    ///
    /// # Errors
    /// As [`lock`](Mutex::lock); [`Error::Lost`](crate::Error::Lost) if the lock was lost before `work` had finished:
    /// it is dropped then, and its outcome unknown. What `work` gave is returned even if the lock cannot be given
    /// back at once: the watchdog sees to that.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        run(self.lock().await?, work).await
    }

    /// Runs `work` under the lock, or `fallback` if it is not free within `limit` (zero: at once).
    ///
    /// The fallback runs only when the lock is busy or the wait timed out: never once `work` has begun, and never on a
    /// store's fault.
    ///
    /// # Cancel safety
    /// Dropping the future drops whichever runs, and gives the lock back.
    ///
    /// # Errors
    /// As [`with`](Mutex::with), without `Timeout`.
    pub async fn with_or_else<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&Guard) -> T,
        fallback: impl AsyncFnOnce() -> T,
    ) -> Result<T, Error> {
        let got = if limit.is_zero() {
            self.try_lock().await?
        } else {
            match self.lock_within(limit).await {
                Ok(guard) => Some(guard),
                Err(Error::Timeout) => None,
                Err(error) => return Err(error),
            }
        };
        match got {
            Some(guard) => run(guard, work).await,
            None => Ok(fallback().await),
        }
    }
}

async fn run<T>(guard: Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
    let output = guard.while_held(work(&guard)).await?;
    if let Err(error) = guard.unlock().await {
        tracing::warn!(%error, "work was done under a lock that could not be given back in order");
    }
    Ok(output)
}
