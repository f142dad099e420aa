//! A timer wheel for claims: constant-time insertion and removal, so that locking does not pay for renewal.
//! It tells what is due; what is done about it is the watchdog's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::Instant;

use crate::held::Held;
use crate::waiter::Waiter;

/// Slots of the wheel. With [`TICK_BITS`] one turn takes 17 s: longer times stay in their slot for more turns.
const SLOTS: usize = 1024;
/// A slot is 2^24 ns, 16.8 ms, wide.
const TICK_BITS: u32 = 24;
/// The slot of an entry that is not in the wheel.
const OUT: u32 = u32::MAX;

/// Something with a time at which the watchdog must look at it.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A held claim: renew it, or its deadline is here.
    Claim(Arc<Held>),
    /// A call that its caller may have stopped polling.
    Call(Arc<Waiter>),
}

impl Entry {
    fn mark(&self) -> &Mark {
        match self {
            Entry::Claim(held) => &held.mark,
            Entry::Call(waiter) => &waiter.mark,
        }
    }
}

/// Where an entry is in the wheel. Written only under the lock that guards the wheel.
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
pub(crate) struct Wheel {
    slots: Box<[Vec<Entry>]>,
    len: usize,
    /// The tick up to which everything due was taken.
    done: u64,
}

impl Wheel {
    pub(crate) fn new(now: Instant) -> Self {
        Wheel {
            slots: vec![Vec::new(); SLOTS].into_boxed_slice(),
            len: 0,
            done: tick(now),
        }
    }

    pub(crate) fn insert(&mut self, entry: Entry, due: Instant) {
        let slot = slot_of(tick(due).max(self.done));
        entry.mark().due.store(due.as_nanos(), Ordering::Relaxed);
        entry.mark().place(slot, self.slots[slot].len());
        self.slots[slot].push(entry);
        self.len += 1;
    }

    /// Takes an entry out; `None` if it is not in.
    pub(crate) fn remove(&mut self, mark: &Mark) -> Option<Entry> {
        if !mark.is_in() {
            return None;
        }
        let slot = mark.slot.load(Ordering::Relaxed) as usize;
        let index = mark.index.load(Ordering::Relaxed) as usize;
        Some(self.take(slot, index))
    }

    /// Gives an entry that is in the wheel another time.
    pub(crate) fn reschedule(&mut self, mark: &Mark, due: Instant) {
        if let Some(entry) = self.remove(mark) {
            self.insert(entry, due);
        }
    }

    fn take(&mut self, slot: usize, index: usize) -> Entry {
        let entry = self.slots[slot].swap_remove(index);
        if let Some(moved) = self.slots[slot].get(index) {
            moved.mark().place(slot, index);
        }
        entry.mark().slot.store(OUT, Ordering::Relaxed);
        self.len -= 1;
        entry
    }

    /// Takes out what is due at `now`, and with it what `ahead` allows to be served early: batches stay large.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        ahead: impl Fn(&Entry) -> Duration,
    ) -> Vec<(Entry, Instant)> {
        let mut due = Vec::new();
        let last = tick(now);
        let turn = (last.saturating_sub(self.done) + 1).min(SLOTS as u64);
        for t in last + 1 - turn..=last {
            self.sweep(slot_of(t), &mut due, |_, at| at <= now);
        }
        self.done = last;
        if let Some(most) = due.iter().map(|(entry, _)| ahead(entry)).max() {
            let ahead_ticks = (tick(now + most) - last).min(SLOTS as u64 - 1);
            for t in last..=last + ahead_ticks {
                self.sweep(slot_of(t), &mut due, |entry, at| {
                    at - now <= ahead(entry) && !ahead(entry).is_zero()
                });
            }
        }
        due
    }

    fn sweep(
        &mut self,
        slot: usize,
        into: &mut Vec<(Entry, Instant)>,
        is_due: impl Fn(&Entry, Instant) -> bool,
    ) {
        let mut index = 0;
        while let Some(entry) = self.slots[slot].get(index) {
            let at = entry.mark().due();
            if is_due(entry, at) {
                into.push((self.take(slot, index), at));
            } else {
                index += 1;
            }
        }
    }

    /// When to look again; `None` if the wheel is empty. Never too late; early only by turns of the wheel.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if self.len == 0 {
            return None;
        }
        let turn = Duration::from_nanos((SLOTS as u64) << TICK_BITS);
        let horizon = Instant::from_nanos(self.done << TICK_BITS) + turn;
        let this_turn = |t: u64| {
            let slot = &self.slots[slot_of(t)];
            slot.iter()
                .map(|entry| entry.mark().due())
                .filter(|due| *due < horizon)
                .min()
        };
        Some(
            (self.done..self.done + SLOTS as u64)
                .find_map(this_turn)
                .unwrap_or(horizon),
        )
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> Vec<Entry> {
        let mut all = Vec::with_capacity(self.len);
        for slot in 0..SLOTS {
            while !self.slots[slot].is_empty() {
                all.push(self.take(slot, 0));
            }
        }
        all
    }
}

fn tick(at: Instant) -> u64 {
    at.as_nanos() >> TICK_BITS
}

fn slot_of(tick: u64) -> usize {
    usize::try_from(tick % SLOTS as u64).unwrap_or(0)
}
