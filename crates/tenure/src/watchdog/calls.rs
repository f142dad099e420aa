//! Calls that their callers poll in place, until they are taken over. Nearly every one has ended long before: those are
//! not waited for, and their memory goes when the next comes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use tenure_backend::Instant;

/// How many that have ended are forgotten whenever one comes: more than come, so what gathered behind a slow one goes soon.
const FORGOTTEN: usize = 2;

/// A call to the store that its caller polls in place.
pub(crate) trait TakeOver: fmt::Debug + Send + Sync {
    /// Moves the call to the client's own task, if its caller still has it: it may have stopped polling it.
    fn take_over(self: Arc<Self>);
}

/// Calls in the order in which they are taken over. None is kept alive by being here.
#[derive(Debug, Default)]
pub(super) struct Calls(VecDeque<(Instant, Weak<dyn TakeOver>)>);

impl Calls {
    /// Adds one that is taken over at `due`. That is later for each; two that come at one moment may change places.
    pub(super) fn push(&mut self, due: Instant, call: Weak<dyn TakeOver>) {
        self.forget_ended(FORGOTTEN);
        self.0.push_back((due, call));
    }

    /// Takes out what is due.
    pub(super) fn take_due(&mut self, now: Instant) -> Calls {
        let over = self.0.partition_point(|(due, _)| *due <= now);
        Calls(self.0.drain(..over).collect())
    }

    /// When to look again: when the first is due that has not ended.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        self.forget_ended(usize::MAX);
        self.0.front().map(|(due, _)| *due)
    }

    /// Takes over all that have not ended.
    pub(super) fn take_over(self) {
        for call in self.0.into_iter().filter_map(|(_, call)| call.upgrade()) {
            call.take_over();
        }
    }

    /// Forgets those at the front that have ended, so many at the most.
    fn forget_ended(&mut self, most: usize) {
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
    use std::time::Duration;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[derive(Debug)]
    struct Call;

    impl TakeOver for Call {
        fn take_over(self: Arc<Self>) {}
    }

    fn push(calls: &mut Calls, due: Instant) -> Arc<Call> {
        let call = Arc::new(Call);
        let tracked: Weak<dyn TakeOver> = Arc::downgrade(&call) as _;
        calls.push(due, tracked);
        call
    }

    #[test]
    fn calls_that_end_at_once_are_forgotten_by_the_next() {
        let mut calls = Calls::default();
        for n in 0..1_000 {
            drop(push(&mut calls, Instant::ORIGIN + n * MS));
            assert_eq!(calls.0.len(), 1);
        }
    }

    #[test]
    fn what_gathered_behind_a_slow_one_goes_by_and_by_when_that_has_ended() {
        let mut calls = Calls::default();
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
    fn the_next_look_is_for_one_that_has_not_ended() {
        let mut calls = Calls::default();
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
    fn what_is_due_is_taken_out_and_no_more() {
        let mut calls = Calls::default();
        let _all: Vec<_> = (0..5)
            .map(|n| push(&mut calls, Instant::ORIGIN + n * MS))
            .collect();
        assert_eq!(calls.take_due(Instant::ORIGIN + 2 * MS).0.len(), 3);
        assert_eq!(calls.next_due(), Some(Instant::ORIGIN + 3 * MS));
    }
}
