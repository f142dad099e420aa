//! The future of a lock: named, so that it can be stored; it borrows nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tenure_backend::ClaimRef;

use crate::engine::attempt::{Attempt, OnWaiting, Taken};
use crate::error::Error;
use crate::guard::Guard;

/// A lock being acquired. It does nothing until it is polled.
///
/// # Cancel safety
/// Dropped at any point, it leaves nothing behind: a call that is under way is finished by the watchdog, and the
/// claim is withdrawn, within a round trip as a rule. An unfair waiter loses its place in this client's queue, a
/// fair one its place in the store's.
///
/// It may be kept without being polled (beside a `select!`, say): that delays others by
/// [`offer_window`](crate::Settings::offer_window) at the most, once; it is then passed over until it is polled.
///
/// # Errors
/// [`Error::Timeout`] with a time limit, if the lock was busy until then; [`Error::Mismatch`], [`Error::Unsupported`],
/// [`Error::Invalid`], [`Error::Limit`], [`Error::WouldDeadlock`], [`Error::Closed`] at once. While it waits it asks an
/// unavailable store again; one that does not answer when the limit comes, or has not said by then that the lock is
/// busy, is [`Error::Backend`], as is every other fault of the store.
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
/// // It borrows nothing, so a task of its own may wait. Dropping it is giving up.
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

/// A search for several locks at once.
pub(crate) trait Search<G>: Future<Output = Result<G, Error>> + Send {
    /// Sets what is called once, when the search begins to wait.
    fn on_waiting(self: Pin<&mut Self>, call: OnWaiting);
}

impl<G> Acquire<G> {
    /// Acquires one lock. `finish` makes the output; it gets `None` only from an attempt that tries.
    pub(crate) fn one(attempt: Attempt, finish: fn(Option<Taken>) -> G) -> Self {
        Acquire(State::One(attempt, finish))
    }

    pub(crate) fn several(search: impl Search<G> + 'static) -> Self {
        Acquire(State::Several(Box::pin(search)))
    }
}

/// The guard of an attempt that waits.
pub(crate) fn guard(taken: Option<Taken>) -> Guard {
    try_guard(taken).expect("an acquisition that waits ends in a guard or an error")
}

/// The guard of an attempt that tries.
pub(crate) fn try_guard(taken: Option<Taken>) -> Option<Guard> {
    taken.map(Guard::new)
}

impl<G> Acquire<G> {
    /// Has `told` called once if the lock is not granted at once: with the claim that waits.
    ///
    /// An unfair waiter that stands in this client's queue may later be granted another claim.
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
