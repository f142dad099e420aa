//! A lock with one holder at a time.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::Mode;

use crate::acquire::Acquire;
use crate::engine::Engine;
use crate::engine::attempt::Patience;
use crate::guard::Guard;
use crate::lock::options::{Configure, LockHandle, options};
use crate::lock::scope::scoped;

/// A lock with one holder at a time among all clients of the store.
///
/// A `Mutex` is a key and some options: it contains no data, does no I/O and is cheap to clone. It is not reentrant: a
/// second [`lock`](Mutex::lock) waits, even in the task that holds the guard. To nest, pass the guard down, or use an
/// [`Owner`](crate::Owner).
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

    /// Keeps the claim in this client for `time` after an unlock if no local task waits, so that the next local `lock`
    /// needs no call to the store. Zero by default, at most 10 ms.
    ///
    /// Use it for a task that acquires the same lock in quick succession. The claim is kept until at most 10 ms after
    /// its grant, and each `lock` gets its own token. [`unlock`](Guard::unlock) returns before the lock is free in the
    /// store: other clients wait up to `time` longer, and their `try_lock` may find the lock busy. Has no effect on
    /// fair locks, fixed leases, members of a multi-lock, and locks with an owner, `max_hold` or `at_least`, nor while
    /// another client is known to wait.
    pub fn linger(self, time: Duration) -> Self {
        Configure::set(self, |options| options.linger = time)
    }

    /// Waits for the lock, for as long as it takes: also while another client holds it for hours, or the store does not
    /// answer. [`Settings::lock_limit`](crate::Settings::lock_limit) sets a limit for all locks of a client; a
    /// [`lock_within`](Mutex::lock_within) has one of its own.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping the future leaves nothing behind.
    pub fn lock(&self) -> Acquire<Guard> {
        self.0.lock_by_default()
    }

    /// Waits for the lock for at most `limit`; then [`Error::Timeout`](crate::Error::Timeout).
    ///
    /// A limit of zero acquires the lock only if it is free, as [`try_lock`](Mutex::try_lock) does.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping the future leaves nothing behind. The same holds when the time limit passes.
    #[doc(alias = "timeout")]
    pub fn lock_within(&self, limit: Duration) -> Acquire<Guard> {
        self.0.lock(Patience::Within(limit))
    }

    /// Acquires the lock if it is free; `None` if it is busy. Never waits for another holder.
    ///
    /// It waits for the answer of the store. If the store hangs, the call ends with
    /// [`Error::Backend`](crate::Error::Backend) at the limit of the store. On Redis the options of the URL set this limit:
    /// `command_timeout`, 3 s and up to a quarter more, or `connect_timeout`, 5 s, while the client connects again. On
    /// SQLite it is 5 s. If that is too long, call [`lock_within`](Mutex::lock_within), which ends at its own limit.
    ///
    /// The lock of a guard that was just dropped is busy until its release has reached the store. To avoid that, call
    /// `unlock().await` instead of dropping the guard.
    ///
    /// # Cancel safety
    /// See [`Acquire`]: dropping the future leaves nothing behind.
    #[doc(alias = "nonblocking")]
    pub fn try_lock(&self) -> Acquire<Option<Guard>> {
        self.0.try_lock()
    }
}
