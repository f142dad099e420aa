//! The future of a lock: named, so that it can be stored; it borrows nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tenure_backend::ClaimRef;

use crate::attempt::{Attempt, Patience};
use crate::election::Leader;
use crate::error::Error;
use crate::guard::Guard;
use crate::line::Line;
use crate::multi::{Hunt, MultiGuard};
use crate::want::Want;

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
pub struct Acquire<G> {
    state: State,
    finish: fn(Found) -> G,
}

enum State {
    One(Attempt),
    Many(Pin<Box<Hunt>>),
}

/// What an acquisition found.
pub(crate) enum Found {
    One(Guard),
    Many(MultiGuard),
    /// It only tried, and the lock is busy.
    Busy,
}

impl Acquire<Guard> {
    pub(crate) fn one(line: Result<Arc<Line>, Error>, want: Want, patience: Patience) -> Self {
        Acquire {
            state: State::One(Attempt::new(line, want, patience)),
            finish: the_guard,
        }
    }
}

impl Acquire<Leader> {
    /// Whoever gets that seat leads.
    pub(crate) fn of_seat(seat: Acquire<Guard>) -> Self {
        Acquire {
            state: seat.state,
            finish: the_leader,
        }
    }
}

impl Acquire<Option<Guard>> {
    pub(crate) fn try_one(line: Result<Arc<Line>, Error>, want: Want) -> Self {
        Acquire {
            state: State::One(Attempt::new(line, want, Patience::Try)),
            finish: a_guard,
        }
    }
}

impl Acquire<MultiGuard> {
    pub(crate) fn many(hunt: Hunt) -> Self {
        Acquire {
            state: State::Many(Box::pin(hunt)),
            finish: the_guards,
        }
    }
}

impl Acquire<Option<MultiGuard>> {
    pub(crate) fn try_many(hunt: Hunt) -> Self {
        Acquire {
            state: State::Many(Box::pin(hunt)),
            finish: guards,
        }
    }
}

const NEVER_BUSY: &str = "an acquisition with patience ends in a guard or an error";

fn the_guard(found: Found) -> Guard {
    a_guard(found).expect(NEVER_BUSY)
}

fn the_leader(found: Found) -> Leader {
    Leader::seated(the_guard(found))
}

fn a_guard(found: Found) -> Option<Guard> {
    match found {
        Found::One(guard) => Some(guard),
        Found::Many(_) | Found::Busy => None,
    }
}

fn the_guards(found: Found) -> MultiGuard {
    guards(found).expect(NEVER_BUSY)
}

fn guards(found: Found) -> Option<MultiGuard> {
    match found {
        Found::Many(guards) => Some(guards),
        Found::One(_) | Found::Busy => None,
    }
}

impl<G> Acquire<G> {
    /// Has `told` called once if the lock is not granted at once: with the claim that waits.
    ///
    /// An unfair waiter that stands in this client's queue may later be granted another claim.
    pub fn on_waiting(mut self, told: impl FnOnce(&ClaimRef) + Send + 'static) -> Self {
        match &mut self.state {
            State::One(attempt) => attempt.on_waiting(Box::new(told)),
            State::Many(hunt) => hunt.on_waiting(Box::new(told)),
        }
        self
    }
}

impl<G> Future for Acquire<G> {
    type Output = Result<G, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let found = match &mut self.state {
            State::One(attempt) => attempt
                .poll(cx)
                .map_ok(|guard| guard.map_or(Found::Busy, Found::One)),
            State::Many(hunt) => hunt
                .as_mut()
                .poll(cx)
                .map_ok(|guards| guards.map_or(Found::Busy, Found::Many)),
        };
        let finish = self.finish;
        found.map_ok(finish)
    }
}

impl<G> Unpin for Acquire<G> {}

impl<G> fmt::Debug for Acquire<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acquire(..)")
    }
}
