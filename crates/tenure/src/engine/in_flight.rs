//! A store call that its caller polls, and that a task of the client adopts (takes over) when the caller is dropped
//! or the call is overdue.
//!
//! A caller may be dropped during its call, or stop polling it, and yet the outcome matters: other waiters of the
//! client wait for it, and a claim that was placed must be released. So the future of the call also does everything
//! that follows from the answer. This happens once, whether the caller or the task polls the future to its end.
//!
//! ```text
//!            poll                     answered
//!   Here ------------> Polled --------------------------> Done
//!    ^                   | not answered
//!    +-------------------+
//!    | dropped or overdue (while Polled: after that poll)
//!    v
//!   Adopted: a task of the client polls the future to its end
//! ```

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tenure_backend::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::tasks::Tasks;

/// A store call, with all that follows from its answer, that a task of the client can adopt.
///
/// The output of an adopted call is dropped. So the call's future itself must pass its result to the caller.
pub(crate) trait Adoptable: Future<Output: Send> + Send + Unpin + 'static {
    /// Called before a task adopts the call, with the caller's last waker. Returns the waker if the caller must be
    /// woken.
    fn prepare(&mut self, waker: Option<Waker>) -> Option<Waker>;
}

/// The caller's handle of a store call.
///
/// # Cancel safety
/// If dropped before the answer, a task adopts the call, i.e. polls it to its end.
pub(crate) struct InFlight<W: Adoptable>(Arc<Cell<W>>);

struct Cell<W> {
    tasks: Tasks,
    state: Mutex<State<W>>,
}

enum State<W> {
    /// The caller is between two polls. The waker is that of its last poll.
    Here(W, Option<Waker>),
    /// The caller is polling. `Some`: a task must adopt the call after this poll.
    Polled(Option<TaskTrackerToken>),
    Adopted,
    Done,
}

/// A call of any type that a task can adopt (take over).
pub(crate) trait Adopt: Send + Sync {
    /// Moves the call to a task of the client, unless it has ended or was adopted before.
    fn adopt(self: Arc<Self>);
}

impl<W: Adoptable> InFlight<W> {
    /// A call that the caller polls from now on. `waker`: that of an earlier poll, if any.
    pub(crate) fn new(tasks: &Tasks, work: W, waker: Option<Waker>) -> Self {
        InFlight(Arc::new(Cell {
            tasks: tasks.clone(),
            state: Mutex::new(State::Here(work, waker)),
        }))
    }

    /// This call, for the list of calls that a task adopts when they are overdue.
    pub(crate) fn adoptable(&self) -> Arc<dyn Adopt> {
        self.0.clone()
    }

    /// Polls the call. Returns `None` if a task of the client has taken it over.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<W::Output>> {
        let cell = &self.0;
        let mut state = cell.state.lock();
        let (mut work, waker) = match mem::replace(&mut *state, State::Polled(None)) {
            State::Here(work, waker) => (work, waker),
            State::Adopted => {
                *state = State::Adopted;
                return Poll::Ready(None);
            }
            State::Polled(_) | State::Done => panic!("a call was polled after it had ended"),
        };
        drop(state);
        // Polls without the lock: a waker that runs here may lock this cell.
        let polled = Pin::new(&mut work).poll(cx);
        let mut state = cell.state.lock();
        if let Poll::Ready(output) = polled {
            *state = State::Done;
            return Poll::Ready(Some(output));
        }
        let waker = match waker {
            Some(waker) if waker.will_wake(cx.waker()) => waker,
            _ => cx.waker().clone(),
        };
        let was = mem::replace(&mut *state, State::Here(work, Some(waker)));
        drop(state);
        if let State::Polled(Some(_token)) = was {
            cell.clone().adopt();
        }
        Poll::Pending
    }
}

impl<W: Adoptable> Drop for InFlight<W> {
    fn drop(&mut self) {
        self.0.clone().adopt();
    }
}

impl<W: Adoptable> Adopt for Cell<W> {
    fn adopt(self: Arc<Self>) {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Adopted) {
            State::Here(mut work, waker) => {
                // Called under the lock, so that `prepare` has run when the caller finds its call adopted.
                let waker = work.prepare(waker);
                drop(state);
                self.tasks.spawn(async move { drop(work.await) });
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Polled(_) => *state = State::Polled(Some(self.tasks.token())),
            other => *state = other,
        }
    }
}

/// Number of ended calls that each insert removes: more than one, so that the list shrinks after a slow call.
const PRUNED: usize = 2;

/// In-flight calls, ordered by the time at which a task of the client adopts them. Entries are weak: most calls end
/// before that time, and later inserts prune them.
#[derive(Default)]
pub(crate) struct OverdueCalls(VecDeque<(Instant, Weak<dyn Adopt>)>);

impl OverdueCalls {
    pub(crate) fn push(&mut self, due: Instant, call: Weak<dyn Adopt>) {
        self.prune(PRUNED);
        self.0.push_back((due, call));
    }

    /// Removes and returns the calls that are overdue at `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> OverdueCalls {
        let due = self.0.partition_point(|(due, _)| *due <= now);
        OverdueCalls(self.0.drain(..due).collect())
    }

    /// The time at which the first call that has not ended is overdue.
    pub(crate) fn next_due(&mut self) -> Option<Instant> {
        self.prune(usize::MAX);
        self.0.front().map(|(due, _)| *due)
    }

    /// Makes tasks adopt all calls that have not ended.
    pub(crate) fn adopt(self) {
        for call in self.0.into_iter().filter_map(|(_, call)| call.upgrade()) {
            call.adopt();
        }
    }

    /// Removes at most `most` ended calls from the front.
    fn prune(&mut self, most: usize) {
        let ended = self
            .0
            .iter()
            .take(most)
            .take_while(|(_, call)| call.strong_count() == 0);
        let ended = ended.count();
        self.0.drain(..ended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Call;

    impl Adopt for Call {
        fn adopt(self: Arc<Self>) {}
    }

    /// A store call that is never answered. Its caller is woken when a task adopts the call.
    struct Unanswered;

    impl Future for Unanswered {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    impl Adoptable for Unanswered {
        fn prepare(&mut self, waker: Option<Waker>) -> Option<Waker> {
            waker
        }
    }

    /// A waker that counts how often it was called.
    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn adopting_wakes_the_waker_of_the_last_poll() {
        let call = InFlight::new(&Tasks::new(false), Unanswered, None);
        let tasks: [Arc<Wakes>; 2] = Default::default();
        for task in &tasks {
            let waker = Waker::from(task.clone());
            assert!(call.poll(&mut Context::from_waker(&waker)).is_pending());
        }
        call.adoptable().adopt();
        assert_eq!(tasks.map(|task| task.0.load(Relaxed)), [0, 1]);
    }

    fn push(calls: &mut OverdueCalls, due: Instant) -> Arc<Call> {
        let call = Arc::new(Call);
        let tracked: Weak<dyn Adopt> = Arc::downgrade(&call) as _;
        calls.push(due, tracked);
        call
    }

    #[test]
    fn ended_calls_are_pruned_by_the_next_insert() {
        let mut calls = OverdueCalls::default();
        for n in 0..1_000 {
            drop(push(&mut calls, Instant::ORIGIN + n * MS));
            assert_eq!(calls.0.len(), 1);
        }
    }

    #[test]
    fn calls_behind_a_slow_call_are_pruned_when_it_ends() {
        let mut calls = OverdueCalls::default();
        let slow = push(&mut calls, Instant::ORIGIN);
        for n in 1..1_000 {
            drop(push(&mut calls, Instant::ORIGIN + n * MS));
        }
        assert_eq!(calls.0.len(), 1_000, "the slow one holds them up");
        drop(slow);
        for n in 1_000..2_000 {
            drop(push(&mut calls, Instant::ORIGIN + n * MS));
        }
        assert_eq!(calls.0.len(), 1);
    }

    #[test]
    fn the_next_due_call_has_not_ended() {
        let mut calls = OverdueCalls::default();
        assert_eq!(calls.next_due(), None);
        let first = push(&mut calls, Instant::ORIGIN + MS);
        let ended = push(&mut calls, Instant::ORIGIN + 2 * MS);
        let last = push(&mut calls, Instant::ORIGIN + 3 * MS);
        drop(ended);
        assert_eq!(calls.next_due(), Some(Instant::ORIGIN + MS));
        drop(first);
        assert_eq!(calls.next_due(), Some(Instant::ORIGIN + 3 * MS));
        drop(last);
        assert_eq!(calls.next_due(), None);
    }

    #[test]
    fn only_due_calls_are_taken_out() {
        let mut calls = OverdueCalls::default();
        let _all: Vec<_> = (0..5)
            .map(|n| push(&mut calls, Instant::ORIGIN + n * MS))
            .collect();
        assert_eq!(calls.take_due(Instant::ORIGIN + 2 * MS).0.len(), 3);
        assert_eq!(calls.next_due(), Some(Instant::ORIGIN + 3 * MS));
    }
}
