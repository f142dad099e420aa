//! The future of an acquisition: a named type that borrows nothing, so that it can be stored and spawned.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tenure_backend::ClaimRef;

use crate::engine::attempt::{Attempt, OnWaiting, Taken};
use crate::error::Error;
use crate::guard::Guard;

/// A future that acquires a lock. It does nothing until it is polled.
///
/// # Cancel safety
/// Dropping the future at any point leaves nothing behind: the watchdog completes a call in flight and withdraws the
/// claim, usually within a round trip. An unfair waiter loses its place in this client's queue, a fair waiter its place
/// in the store's queue.
///
/// The future may be kept without being polled, for example across iterations of a `select!` loop. If it is then
/// offered the lock, it delays other waiters once, by about [`offer_window`](crate::Settings::offer_window). After that
/// it is skipped until it is polled.
///
/// # Errors
/// [`Error::Timeout`] if the lock was busy until the time limit; [`Error::Mismatch`], [`Error::Unsupported`],
/// [`Error::Invalid`], [`Error::Limit`], [`Error::WouldDeadlock`], [`Error::Closed`] without waiting for the limit.
/// While the store is unavailable, the future retries, except that of a `try_` method. If the store does not answer at
/// the time limit, or has never reported that the lock is busy, the error is [`Error::Backend`], as for every other
/// fault of the store.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
/// use tenure::{Acquire, Guard};
///
/// let client = tenure::connect("memory:").await?;
/// let mutex = client.mutex("report");
/// let held = mutex.lock().await?;
/// let waiting: Acquire<Guard> = mutex.lock().on_waiting(|claim| println!("{claim:?} waits"));
/// let given_up: Acquire<Guard> = mutex.lock();
/// // The future borrows nothing, so a task of its own may wait for it. Dropping the future gives up.
/// let task = tokio::spawn(waiting);
/// drop(given_up);
/// held.unlock().await?;
/// let guard = task.await.expect("the task ran to its end")?;
/// guard.unlock().await
/// # }
/// ```
#[must_use = "a lock is not acquired until its future is awaited"]
pub struct Acquire<G>(State<G>);

enum State<G> {
    One(Attempt, fn(Option<Taken>) -> G),
    Several(Pin<Box<dyn Search<G>>>),
}

/// The future of a multi-lock, which acquires several locks.
pub(crate) trait Search<G>: Future<Output = Result<G, Error>> + Send {
    /// Sets a function that is called once, when the acquisition begins to wait.
    fn on_waiting(self: Pin<&mut Self>, call: OnWaiting);
}

impl<G> Acquire<G> {
    /// Acquires one lock. `finish` makes the output; it gets `None` if a `try_` attempt found the lock busy.
    pub(crate) fn one(attempt: Attempt, finish: fn(Option<Taken>) -> G) -> Self {
        Acquire(State::One(attempt, finish))
    }

    pub(crate) fn several(search: impl Search<G> + 'static) -> Self {
        Acquire(State::Several(Box::pin(search)))
    }
}

/// Makes the guard of an attempt that waits for the lock.
pub(crate) fn guard(taken: Option<Taken>) -> Guard {
    try_guard(taken).expect("an acquisition that waits ends in a guard or an error")
}

/// Makes the guard of a `try_` attempt; `None` if the lock was busy.
pub(crate) fn try_guard(taken: Option<Taken>) -> Option<Guard> {
    taken.map(Guard::new)
}

impl<G> Acquire<G> {
    /// Calls `told` once, with the waiting claim, if the lock is not granted at once.
    ///
    /// An unfair waiter in this client's queue may later get the lock under another claim.
    pub fn on_waiting(mut self, told: impl FnOnce(&ClaimRef) + Send + 'static) -> Self {
        match &mut self.0 {
            State::One(attempt, _) => attempt.on_waiting(Box::new(told)),
            State::Several(search) => search.as_mut().on_waiting(Box::new(told)),
        }
        self
    }
}

impl<G> Future for Acquire<G> {
    type Output = Result<G, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::One(attempt, finish) => attempt.poll(cx).map_ok(*finish),
            State::Several(search) => search.as_mut().poll(cx),
        }
    }
}

impl<G> Unpin for Acquire<G> {}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acquire(..)")
    }
}
