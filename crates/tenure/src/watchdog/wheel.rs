//! A timer wheel for held claims: constant-time insertion and removal, so that locking does not pay for renewal.
//! It tells which are due; what is done about them is the watchdog's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::Instant;

use crate::held::Held;

/// Slots of the wheel. With [`TICK_BITS`] one turn takes 17 s: longer times stay in their slot for more turns.
const SLOTS: usize = 1024;
/// A slot is 2^24 ns, 16.8 ms, wide.
const TICK_BITS: u32 = 24;
/// The slot of a claim that is not in the wheel.
const OUT: u32 = u32::MAX;

/// Where a claim is in the wheel. Written only under the lock that guards the wheel.
#[derive(Debug)]
pub(crate) struct Mark {
    slot: AtomicU32,
    index: AtomicU32,
    due: AtomicU64,
}

impl Default for Mark {
    fn default() -> Self {
        Mark {
            slot: AtomicU32::new(OUT),
            index: AtomicU32::new(0),
            due: AtomicU64::new(0),
        }
    }
}

impl Mark {
    fn place(&self, slot: usize, index: usize) {
        self.slot
            .store(u32::try_from(slot).unwrap_or(OUT), Ordering::Relaxed);
        self.index
            .store(u32::try_from(index).unwrap_or(OUT), Ordering::Relaxed);
    }

    fn is_in(&self) -> bool {
        self.slot.load(Ordering::Relaxed) != OUT
    }

    fn due(&self) -> Instant {
        Instant::from_nanos(self.due.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
pub(super) struct Wheel {
    slots: Box<[Vec<Arc<Held>>]>,
    len: usize,
    /// The tick up to which everything due was taken.
    done: u64,
}

impl Wheel {
    pub(super) fn new(now: Instant) -> Self {
        Wheel {
            slots: vec![Vec::new(); SLOTS].into_boxed_slice(),
            len: 0,
            done: tick(now),
        }
    }

    pub(super) fn insert(&mut self, held: Arc<Held>, due: Instant) {
        let slot = slot_of(tick(due).max(self.done));
        held.mark.due.store(due.as_nanos(), Ordering::Relaxed);
        held.mark.place(slot, self.slots[slot].len());
        self.slots[slot].push(held);
        self.len += 1;
    }

    /// Takes a claim out; `None` if it is not in.
    pub(super) fn remove(&mut self, mark: &Mark) -> Option<Arc<Held>> {
        if !mark.is_in() {
            return None;
        }
        let slot = mark.slot.load(Ordering::Relaxed) as usize;
        let index = mark.index.load(Ordering::Relaxed) as usize;
        Some(self.take(slot, index))
    }

    /// Gives a claim that is in the wheel another time.
    pub(super) fn reschedule(&mut self, mark: &Mark, due: Instant) {
        if let Some(held) = self.remove(mark) {
            self.insert(held, due);
        }
    }

    fn take(&mut self, slot: usize, index: usize) -> Arc<Held> {
        let held = self.slots[slot].swap_remove(index);
        if let Some(moved) = self.slots[slot].get(index) {
            moved.mark.place(slot, index);
        }
        held.mark.slot.store(OUT, Ordering::Relaxed);
        self.len -= 1;
        held
    }

    /// Takes out what is due at `now`, and with it what `ahead` allows to be served early: batches stay large.
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        ahead: impl Fn(&Held) -> Duration,
    ) -> Vec<(Arc<Held>, Instant)> {
        let mut due = Vec::new();
        let last = tick(now);
        let turn = (last.saturating_sub(self.done) + 1).min(SLOTS as u64);
        for t in last + 1 - turn..=last {
            self.sweep(slot_of(t), &mut due, |_, at| at <= now);
        }
        self.done = last;
        if let Some(most) = due.iter().map(|(held, _)| ahead(held)).max() {
            let ahead_ticks = (tick(now + most) - last).min(SLOTS as u64 - 1);
            for t in last..=last + ahead_ticks {
                self.sweep(slot_of(t), &mut due, |held, at| {
                    at - now <= ahead(held) && !ahead(held).is_zero()
                });
            }
        }
        due
    }

    fn sweep(
        &mut self,
        slot: usize,
        into: &mut Vec<(Arc<Held>, Instant)>,
        is_due: impl Fn(&Held, Instant) -> bool,
    ) {
        let mut index = 0;
        while let Some(held) = self.slots[slot].get(index) {
            let at = held.mark.due();
            if is_due(held, at) {
                into.push((self.take(slot, index), at));
            } else {
                index += 1;
            }
        }
    }

    /// When to look again; `None` if the wheel is empty. Never too late; early only by turns of the wheel.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let turn = Duration::from_nanos((SLOTS as u64) << TICK_BITS);
        let horizon = Instant::from_nanos(self.done << TICK_BITS) + turn;
        let this_turn = |t: u64| {
            let slot = &self.slots[slot_of(t)];
            slot.iter()
                .map(|held| held.mark.due())
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
