//! The renewer's schedule: a timer wheel of the holds to renew or check, and the alarm of the task that handles them.
//!
//! A hold enters the wheel, or moves in it, only by [`Schedule::insert`] and [`Schedule::reschedule`]. Both wake the
//! task if its timer would end after the hold is due.

use std::iter;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::Instant;
use tokio::sync::Notify;

use super::tasks::Alarm;
use super::wheel::{Mark, Marked, Wheel};

/// Has cache lines of its own: all cores lock it at each grant and release.
#[repr(align(128))]
pub(crate) struct Schedule<T> {
    due: Mutex<Due<T>>,
    /// Wakes the task for an item that is due before the task's timer ends.
    signal: Notify,
}

struct Due<T> {
    wheel: Wheel<T>,
    alarm: Alarm,
}

impl<T: Marked + Clone> Schedule<T> {
    pub(crate) fn new(now: Instant) -> Self {
        Schedule {
            due: Mutex::new(Due {
                wheel: Wheel::new(now),
                alarm: Alarm::default(),
            }),
            signal: Notify::new(),
        }
    }

    pub(crate) fn insert(&self, item: T, due: Instant) {
        self.insert_all(iter::once((item, due)));
    }

    pub(crate) fn insert_all(&self, items: impl Iterator<Item = (T, Instant)>) {
        self.change(|wheel| {
            let inserted = items.map(|(item, due)| {
                wheel.insert(item, due);
                due
            });
            inserted.min()
        });
    }

    /// Changes the due times of a batch of items. Skips those that are not in the wheel. Begins with the last item: the
    /// items of a batch lie in the order in which they were inserted, and the last one leaves its slot without moving
    /// another.
    pub(crate) fn reschedule<'a>(&self, items: impl DoubleEndedIterator<Item = (&'a Mark, Instant)>) {
        let items = items.rev();
        self.change(|wheel| {
            let moved = items.filter_map(|(mark, due)| wheel.reschedule(mark, due).then_some(due));
            moved.min()
        });
    }

    /// Changes the wheel. `change` returns the earliest time that it has set. Wakes the task if it would sleep longer.
    fn change(&self, change: impl FnOnce(&mut Wheel<T>) -> Option<Instant>) {
        let mut due = self.due.lock();
        let earliest = change(&mut due.wheel);
        let is_sooner = earliest.is_some_and(|earliest| due.alarm.add(earliest));
        drop(due);
        // Seldom true: the task's timer keeps an earlier time, even after the item that set that time was removed.
        if is_sooner {
            self.signal.notify_one();
        }
    }

    /// Removes an item. Returns `None` if it is not in the wheel.
    pub(crate) fn remove(&self, mark: &Mark) -> Option<T> {
        self.due.lock().wheel.remove(mark)
    }

    pub(crate) fn items(&self) -> Vec<T> {
        self.due.lock().wheel.items()
    }

    /// See [`Wheel::take_due`].
    pub(crate) fn take_due(
        &self,
        now: Instant,
        most: usize,
        ahead: impl Fn(&T) -> Duration,
    ) -> Vec<(T, Instant)> {
        self.due.lock().wheel.take_due(now, most, ahead)
    }

    /// Sets the alarm, and returns the time at which the task wakes next, if it is needed.
    pub(crate) fn next_wake(&self, now: Instant) -> Option<Instant> {
        let mut due = self.due.lock();
        let next = due.wheel.next_due();
        due.alarm.next(now, next)
    }

    /// Waits until an item is due before the task's timer ends.
    pub(crate) async fn woken(&self) {
        self.signal.notified().await;
    }
}
