//! A timer wheel with constant-time insertion and removal, so that locking stays cheap. It finds the items that are
//! due; the renewer handles them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure_backend::Instant;

/// Number of slots. With [`TICK_BITS`] one turn takes 17 s; an item that is due later stays in its slot for more
/// turns.
const SLOTS: usize = 1024;
/// An empty slot keeps its memory if that has room for at most this number of items.
const SPARE: usize = 64;
/// Width of a slot: 2^24 ns, which is 16.8 ms.
const TICK_BITS: u32 = 24;
/// The most items to take out at once; if one batch is larger, that batch. Between two portions other tasks can run,
/// and the items of a small portion are still in the processor's caches when the store answers.
const PORTION: usize = 256;

/// An item of a timer wheel. Its mark says where it is in the wheel.
pub(crate) trait Marked {
    fn mark(&self) -> &Mark;
}

/// The position of an item in the wheel. Written only under the lock that guards the wheel.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    /// The number of the slot, from 1; 0 if the item is not in the wheel.
    slot: AtomicU32,
    index: AtomicU32,
}

impl Mark {
    fn place(&self, slot: usize, index: usize) {
        self.slot.store(slot as u32 + 1, Ordering::Relaxed);
        self.index.store(index as u32, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// The items of each slot, with their due times: beside an item, so that a look at a slot reads no item.
    slots: Box<[Vec<(T, Instant)>]>,
    len: usize,
    /// The tick up to which all due items were taken.
    done: u64,
    /// Whether more items may be due, because the last call took a full portion.
    more: bool,
}

impl<T: Marked + Clone> Wheel<T> {
    pub(crate) fn new(now: Instant) -> Self {
        Wheel {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            len: 0,
            done: tick(now),
            more: false,
        }
    }

    pub(crate) fn insert(&mut self, item: T, due: Instant) {
        let slot = slot_of(tick(due).max(self.done));
        item.mark().place(slot, self.slots[slot].len());
        self.slots[slot].push((item, due));
        self.len += 1;
    }

    /// Removes an item. Returns `None` if it is not in the wheel.
    pub(crate) fn remove(&mut self, mark: &Mark) -> Option<T> {
        let slot = mark.slot.load(Ordering::Relaxed).checked_sub(1)? as usize;
        let index = mark.index.load(Ordering::Relaxed) as usize;
        Some(self.take(slot, index).0)
    }

    /// Changes the due time of an item. Returns false if it is not in the wheel.
    pub(crate) fn reschedule(&mut self, mark: &Mark, due: Instant) -> bool {
        let item = self.remove(mark);
        item.map(|item| self.insert(item, due)).is_some()
    }

    pub(crate) fn items(&self) -> Vec<T> {
        let items = self.slots.iter().flatten();
        items.map(|(item, _)| item.clone()).collect()
    }

    fn take(&mut self, slot: usize, index: usize) -> (T, Instant) {
        let (item, due) = self.slots[slot].swap_remove(index);
        if let Some((moved, _)) = self.slots[slot].get(index) {
            moved.mark().place(slot, index);
        } else if index == 0 && self.slots[slot].capacity() > SPARE {
            // The slot is empty: frees its memory if it was crowded. Shrinking it would leave a small block that
            // fragments the memory.
            self.slots[slot] = Vec::new();
        }
        item.mark().slot.store(0, Ordering::Relaxed);
        self.len -= 1;
        (item, due)
    }

    /// Takes out the items that are due at `now`, at most a portion. The caller sends them in batches of `most`: to
    /// fill the last one, also takes items that are due soon, each within its own time `ahead`.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        most: usize,
        ahead: impl Fn(&T) -> Duration,
    ) -> Vec<(T, Instant)> {
        let mut due = Vec::new();
        let portion = PORTION.max(most);
        let last = tick(now);
        let turn = (last.saturating_sub(self.done) + 1).min(SLOTS as u64);
        for t in last + 1 - turn..=last {
            self.done = t;
            self.sweep(slot_of(t), &mut due, portion, |_, at| at <= now);
            self.more = due.len() >= portion;
            if self.more {
                return due;
            }
        }
        let full = due.len().next_multiple_of(most.max(1));
        if let Some(early) = due.iter().map(|(item, _)| ahead(item)).max() {
            let ahead_ticks = (tick(now + early) - last).min(SLOTS as u64 - 1);
            for t in last..=last + ahead_ticks {
                self.sweep(slot_of(t), &mut due, full, |item, at| {
                    at <= now + early && at - now <= ahead(item) && !ahead(item).is_zero()
                });
            }
        }
        due
    }

    /// Takes out the due items of a slot, until there are `full` ones. Begins with the last item, which can leave
    /// without moving another.
    fn sweep(
        &mut self,
        slot: usize,
        into: &mut Vec<(T, Instant)>,
        full: usize,
        is_due: impl Fn(&T, Instant) -> bool,
    ) {
        for index in (0..self.slots[slot].len()).rev() {
            if into.len() >= full {
                return;
            }
            let (item, at) = &self.slots[slot][index];
            if is_due(item, *at) {
                into.push(self.take(slot, index));
            }
        }
    }

    /// When to call `take_due` next: at once after a full portion, else when the next item is due, or after one turn
    /// of the wheel if none is due before. `None` if the wheel is empty.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        if self.more {
            return Some(Instant::from_nanos(self.done << TICK_BITS));
        }
        let turn = Duration::from_nanos((SLOTS as u64) << TICK_BITS);
        let horizon = Instant::from_nanos(self.done << TICK_BITS) + turn;
        let this_turn = |t: u64| {
            let slot = &self.slots[slot_of(t)];
            slot.iter()
                .map(|(_, due)| *due)
                .filter(|due| *due < horizon)
                .min()
        };
        Some(
            (self.done..self.done + SLOTS as u64)
                .find_map(this_turn)
                .unwrap_or(horizon),
        )
    }
}

fn tick(at: Instant) -> u64 {
    at.as_nanos() >> TICK_BITS
}

fn slot_of(tick: u64) -> usize {
    usize::try_from(tick % SLOTS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TURN: Duration = Duration::from_nanos((SLOTS as u64) << TICK_BITS);

    #[derive(Debug, Default)]
    struct Item(Mark);

    impl Marked for Arc<Item> {
        fn mark(&self) -> &Mark {
            &self.0
        }
    }

    /// A wheel with an item due at each of `times` after the start. Also returns the items and the start.
    fn wheel(times: &[Duration]) -> (Wheel<Arc<Item>>, Vec<Arc<Item>>, Instant) {
        let start = Instant::ORIGIN + 1_000 * SECOND;
        let mut wheel = Wheel::new(start);
        let items: Vec<_> = times.iter().map(|_| Arc::new(Item::default())).collect();
        for (item, time) in items.iter().zip(times) {
            wheel.insert(item.clone(), start + *time);
        }
        (wheel, items, start)
    }

    /// Takes the items that are due when the time `after` has passed since the start. Returns their due times,
    /// sorted.
    fn due(wheel: &mut Wheel<Arc<Item>>, start: Instant, after: Duration) -> Vec<Duration> {
        let mut due: Vec<_> = wheel
            .take_due(start + after, 1, |_| Duration::ZERO)
            .into_iter()
            .map(|(_, at)| at - start)
            .collect();
        due.sort();
        due
    }

    #[test]
    fn items_are_due_exactly_at_their_time() {
        let times = [SECOND, 2 * SECOND, TURN - SECOND, TURN + SECOND, 3 * TURN];
        let (mut wheel, _items, start) = wheel(&times);
        for time in times {
            assert!(
                due(&mut wheel, start, time - Duration::from_nanos(1)).is_empty(),
                "{time:?}"
            );
            assert_eq!(due(&mut wheel, start, time), [time]);
        }
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn items_of_several_turns_are_taken_at_once() {
        let (mut wheel, _items, start) = wheel(&[SECOND, TURN / 2, 2 * TURN, 5 * TURN]);
        assert_eq!(due(&mut wheel, start, 4 * TURN), [SECOND, TURN / 2, 2 * TURN]);
        assert_eq!(due(&mut wheel, start, 5 * TURN), [5 * TURN]);
    }

    #[test]
    fn an_item_inserted_late_is_due_at_once() {
        let (mut wheel, _items, start) = wheel(&[]);
        assert!(due(&mut wheel, start, 10 * SECOND).is_empty());
        wheel.insert(Arc::new(Item::default()), start + SECOND);
        assert!(wheel.next_due().is_some_and(|next| next <= start + 10 * SECOND));
        assert_eq!(due(&mut wheel, start, 10 * SECOND), [SECOND]);
    }

    #[test]
    fn removing_an_item_keeps_the_others_in_place() {
        // All items are in one slot, so that each removal moves another item to the free position.
        let times: Vec<_> = (1..=8).map(|n| SECOND + Duration::from_nanos(n)).collect();
        let (mut wheel, items, start) = wheel(&times);
        for at in [3, 7, 0] {
            assert!(Arc::ptr_eq(&wheel.remove(items[at].mark()).unwrap(), &items[at]));
            assert!(wheel.remove(items[at].mark()).is_none());
        }
        let left = due(&mut wheel, start, 2 * SECOND);
        assert_eq!(left, [1, 2, 4, 5, 6].map(|at| times[at]));
        assert!(items.iter().all(|item| wheel.remove(item.mark()).is_none()));
    }

    #[test]
    fn a_rescheduled_item_is_due_at_its_new_time() {
        let (mut wheel, items, start) = wheel(&[SECOND]);
        assert!(wheel.reschedule(items[0].mark(), start + 5 * SECOND));
        assert!(due(&mut wheel, start, 4 * SECOND).is_empty());
        assert_eq!(due(&mut wheel, start, 5 * SECOND), [5 * SECOND]);
        // The item was taken out, so there is nothing to reschedule.
        assert!(!wheel.reschedule(items[0].mark(), start + 6 * SECOND));
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn early_items_are_taken_only_with_due_ones() {
        let ahead = |_: &Arc<Item>| 3 * SECOND;
        let (mut wheel, _items, start) = wheel(&[10 * SECOND, 12 * SECOND, 14 * SECOND]);
        assert!(wheel.take_due(start + 9 * SECOND, 8, ahead).is_empty());
        let taken = wheel.take_due(start + 10 * SECOND, 8, ahead);
        assert_eq!(taken.len(), 2);
        assert_eq!(due(&mut wheel, start, 14 * SECOND), [14 * SECOND]);
    }

    #[test]
    fn early_items_only_fill_the_last_batch() {
        let ahead = |_: &Arc<Item>| 9 * SECOND;
        let times: Vec<_> = (10..18).map(|n| n * SECOND).collect();
        let (mut wheel, _items, start) = wheel(&times);
        assert_eq!(wheel.take_due(start + 10 * SECOND, 3, ahead).len(), 3);
        assert_eq!(wheel.take_due(start + 16 * SECOND, 2, ahead).len(), 4);
        assert_eq!(due(&mut wheel, start, 17 * SECOND), [17 * SECOND]);
    }

    #[test]
    fn many_due_items_are_taken_in_portions() {
        let times: Vec<_> = (0..3 * PORTION as u64 + 1)
            .map(|n| SECOND + Duration::from_micros(n * 50))
            .collect();
        let (mut wheel, _items, start) = wheel(&times);
        let at = 2 * SECOND;
        let mut taken = Vec::new();
        while wheel.next_due().is_some_and(|next| next <= start + at) {
            let portion = due(&mut wheel, start, at);
            assert!(portion.len() <= PORTION, "{}", portion.len());
            taken.extend(portion);
        }
        taken.sort();
        assert_eq!(taken, times);
    }

    #[test]
    fn the_next_look_is_never_too_late() {
        let times = [SECOND, TURN / 2, TURN + SECOND, 4 * TURN + SECOND];
        let (mut wheel, _items, start) = wheel(&times);
        let mut served = Vec::new();
        while let Some(next) = wheel.next_due() {
            let missed = times.iter().find(|time| !served.contains(*time)).copied();
            assert!(
                missed.is_some_and(|missed| next <= start + missed),
                "{next:?} {missed:?}"
            );
            served.extend(due(&mut wheel, start, next - start));
        }
        assert_eq!(served, times);
    }
}
