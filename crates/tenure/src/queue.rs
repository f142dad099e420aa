//! The waiters of one line, in order. What is offered to them, and by whom, is the line's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tenure_backend::Instant;
use tokio::sync::Notify;

use crate::waiter::Waiter;

/// Where the places of a client's waiters come from. None is given twice, so that a waiter who comes back to a queue that
/// was made anew meets nobody on its place.
#[derive(Debug, Default)]
pub(crate) struct Places {
    behind: AtomicI64,
    before: AtomicI64,
}

impl Places {
    /// Behind everybody.
    pub(crate) fn last(&self) -> i64 {
        self.behind.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Before everybody.
    pub(crate) fn first(&self) -> i64 {
        self.before.fetch_sub(1, Ordering::Relaxed) - 1
    }
}

/// The part of a line that exists only while somebody waits.
#[derive(Debug)]
pub(crate) struct Queue {
    /// In order of their places.
    waiters: VecDeque<Arc<Waiter>>,
    /// Who was offered a grant and may not have taken it yet.
    offers: SmallVec<[Arc<Waiter>; 1]>,
    /// Somebody was offered a grant since the driver looked last.
    lively: bool,
    /// The driver looks again only when it is woken.
    sleeps: bool,
    /// Wakes the driver.
    pub(crate) bell: Arc<Notify>,
    /// A release with an heir is under way: the driver leaves the store alone.
    pub(crate) heir: bool,
    /// When the store was last asked about a holder whose lease is not renewed.
    pub(crate) asked_at: Instant,
    /// Since when every hand-over through the store was to one of this client's.
    pub(crate) handed_on_since: Option<Instant>,
    /// Until then nobody of this client asks: whoever is there may have it.
    pub(crate) breath_until: Instant,
    /// Until then others may go first.
    pub(crate) yield_until: Instant,
    /// Hand-overs that this run may still have.
    pub(crate) run_left: u32,
    /// How many grants the next run reserves: twice as many as the last one handed out.
    pub(crate) reserve: u32,
    /// Runs that ended here.
    pub(crate) runs: u32,
    /// Somebody else was waiting when the store was last asked.
    pub(crate) others: bool,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Queue {
            waiters: VecDeque::new(),
            offers: SmallVec::new(),
            lively: true,
            sleeps: false,
            bell: Arc::new(Notify::new()),
            heir: false,
            asked_at: Instant::ORIGIN,
            handed_on_since: None,
            breath_until: Instant::ORIGIN,
            yield_until: Instant::ORIGIN,
            run_left: u32::MAX,
            reserve: twice(1),
            runs: 0,
            others: false,
        }
    }

    /// Puts a waiter at its place: the one that it was given, or had before.
    pub(crate) fn put(&mut self, waiter: Arc<Waiter>) {
        let at = self.at(&waiter);
        self.waiters.insert(at, waiter);
    }

    fn at(&self, waiter: &Waiter) -> usize {
        self.waiters
            .partition_point(|other| other.place() < waiter.place())
    }

    /// Takes a waiter out, wherever it is.
    pub(crate) fn remove(&mut self, waiter: &Arc<Waiter>) {
        let at = self.at(waiter);
        if self
            .waiters
            .get(at)
            .is_some_and(|found| Arc::ptr_eq(found, waiter))
        {
            self.waiters.remove(at);
        }
        self.offers.retain(|other| !Arc::ptr_eq(other, waiter));
    }

    /// The first waiter whose future is there.
    pub(crate) fn first(&self) -> Option<&Arc<Waiter>> {
        self.waiters.iter().find(|waiter| waiter.is_waiting())
    }

    /// Takes out the first waiter whose future is there, if it is one of those meant. It is looked for once: a future may go
    /// at any moment, and the next waiter may be of another kind.
    pub(crate) fn take_first_if(&mut self, is_meant: impl FnOnce(&Waiter) -> bool) -> Option<Arc<Waiter>> {
        let at = self.waiters.iter().position(|waiter| waiter.is_waiting())?;
        is_meant(&self.waiters[at]).then(|| self.waiters.remove(at))?
    }

    /// A run has ended in which so many grants were handed out: the next one reserves twice as many.
    ///
    /// So a key that is hammered here asks the store seldom, and one that is not leaves few tokens unused: where they follow
    /// the server's clock they must not run ahead of it.
    pub(crate) fn run_ended(&mut self, handed_out: u32) {
        self.reserve = twice(handed_out);
    }

    /// How many wait.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.waiters.len()).unwrap_or(u32::MAX)
    }

    /// Notes that a waiter, who has left the queue, was offered a grant.
    pub(crate) fn offered(&mut self, waiter: Arc<Waiter>) {
        self.offers.retain(|other| other.is_offered());
        self.offers.push(waiter);
        self.lively = true;
        if std::mem::take(&mut self.sleeps) {
            self.bell.notify_one();
        }
    }

    /// How soon the driver is to look after offers that may not be taken, each of which it has to find within `window`.
    pub(crate) fn until_next_look(&mut self, window: Duration) -> Duration {
        if !self.offers().is_empty() {
            return window / 4;
        }
        // While there are offers it is not woken for each of them: that would cost more than the hand-overs.
        if std::mem::take(&mut self.lively) {
            return window;
        }
        self.sleeps = true;
        Duration::MAX
    }

    /// Whose offers may not have been taken yet.
    pub(crate) fn offers(&mut self) -> &[Arc<Waiter>] {
        self.offers.retain(|waiter| waiter.is_offered());
        &self.offers
    }

    /// Whether nobody waits and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiters.is_empty() && !self.heir && !self.offers.iter().any(|waiter| waiter.is_offered())
    }

    /// Everybody in it.
    pub(crate) fn into_waiters(self) -> VecDeque<Arc<Waiter>> {
        self.waiters
    }
}

/// How many grants a run reserves after one that handed out this many.
fn twice(handed_out: u32) -> u32 {
    handed_out.saturating_mul(2)
}
