//! Everything a verb may know about one key at one moment, and what it changed.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;
use std::time::Duration;

use tenure_backend::{
    BackendError, ClaimId, ClientId, Effect, Fault, Instant, Kind, LockKey, Mode, TokenRange,
};

use super::{Phase, Row};
use crate::profile::LIMITS;

/// How many rows that count make a view long.
const MIN_CACHED_ROWS: usize = 32;

/// One moment on both clocks, read once a transaction has the write lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// On the clock that counts leases.
    pub(crate) now: Instant,
    /// The wall clock, for tokens alone.
    pub(crate) wall_micros: u64,
}

/// The rows of one key, at one moment.
///
/// A transaction reads all rows of the key that are not [`Phase::Ended`], those of the claims it was asked about in
/// any phase, and the key's token counter. Several verbs may follow each other on one view, so that a key on which
/// a thousand wait is read once for all of them: none of them goes through all rows unless it has to.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) key: LockKey,
    pub(crate) at: Moment,
    entries: Vec<Entry>,
    by_id: HashMap<ClaimId, usize>,
    /// The rows that count at this moment.
    ranks: BTreeSet<Rank>,
    /// The entries that differ from the database's, in the order in which they came to.
    changed: Vec<usize>,
    counter: u64,
    counter_changed: bool,
    needs_wake: bool,
}

/// A row that counts: its phase, its place, and its entry.
type Rank = (Phase, i64, usize);

#[derive(Debug)]
struct Entry {
    row: Row,
    /// Whether the row was removed.
    removed: bool,
    /// The phase that the database has it in, if it has it.
    stored: Option<Phase>,
    /// Whether it is among [`View::changed`].
    changed: bool,
}

/// What is to be written. All of it in the transaction in which the view was read.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// A row the database does not have.
    Insert(&'a Row),
    /// A row the database has, in that phase.
    Update(&'a Row, Phase),
    /// A row the database has, in that phase, and shall not have.
    Delete(&'a Row, Phase),
    /// The greatest token drawn on the key.
    Counter(u64),
}

impl View {
    pub(crate) fn new(key: LockKey, at: Moment) -> Self {
        View {
            key,
            at,
            entries: Vec::new(),
            by_id: HashMap::new(),
            ranks: BTreeSet::new(),
            changed: Vec::new(),
            counter: 0,
            counter_changed: false,
            needs_wake: false,
        }
    }

    /// The same rows at a later moment. Nobody may have changed them in the database since they were
    /// [`written`](Self::mark_written).
    pub(crate) fn advance_to(mut self, at: Moment) -> Self {
        self.at = at;
        self.needs_wake = false;
        let over = |rank: &&Rank| self.rank(rank.2).is_none();
        let over: Vec<Rank> = self.ranks.iter().filter(over).copied().collect();
        for rank in over {
            self.ranks.remove(&rank);
        }
        self
    }

    /// How many rows there are, those that count and others.
    pub(crate) fn rows(&self) -> usize {
        self.entries.len()
    }

    /// Whether to read it again would take long, and most of what is here counts.
    pub(crate) fn is_worth_caching(&self) -> bool {
        MIN_CACHED_ROWS <= self.ranks.len() && self.entries.len() <= 2 * self.ranks.len()
    }

    /// Adds a row as the database has it, with the lease that was written with it. Rows of an older build have none.
    ///
    /// A row of an earlier boot is removed at once.
    pub(crate) fn add(&mut self, row: Row, lease: Option<Duration>) {
        let is_over = lease.is_some_and(|lease| row.is_of_earlier_boot(lease, self.now()));
        let stored = Some(row.phase);
        let at = self.append(row, stored);
        if is_over {
            self.change(at, |entry| entry.removed = true);
        }
    }

    /// The key's token counter as the database has it.
    pub(crate) fn set_counter_value(&mut self, counter: u64) {
        self.counter = counter;
    }

    pub(crate) fn now(&self) -> Instant {
        self.at.now
    }

    fn append(&mut self, row: Row, stored: Option<Phase>) -> usize {
        let at = self.entries.len();
        self.by_id.insert(row.id, at);
        self.entries.push(Entry {
            row,
            removed: false,
            stored,
            changed: false,
        });
        self.ranks.extend(self.rank(at));
        at
    }

    fn rank(&self, at: usize) -> Option<Rank> {
        let Entry { row, removed, .. } = &self.entries[at];
        let counts = match row.phase {
            Phase::Ended => false,
            Phase::Evicted => self.now() < row.reserved_until,
            Phase::Watching | Phase::Waiting | Phase::Granted => row.is_unexpired(self.now()),
        };
        (counts && !removed).then_some((row.phase, row.position, at))
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Entry)) {
        if let Some(rank) = self.rank(at) {
            self.ranks.remove(&rank);
        }
        change(&mut self.entries[at]);
        self.ranks.extend(self.rank(at));
        if !std::mem::replace(&mut self.entries[at].changed, true) {
            self.changed.push(at);
        }
    }

    /// The claim's row, in whatever phase, expired or not.
    pub(crate) fn row(&self, id: ClaimId) -> Option<&Row> {
        let entry = &self.entries[*self.by_id.get(&id)?];
        (!entry.removed).then_some(&entry.row)
    }

    /// Inserts the row, or replaces the one of the same claim.
    pub(crate) fn put(&mut self, row: Row) {
        match self.by_id.get(&row.id).copied() {
            Some(at) => self.change(at, |entry| {
                entry.row = row;
                entry.removed = false;
            }),
            None => {
                let at = self.append(row, None);
                self.change(at, |_| {});
            }
        }
    }

    pub(crate) fn remove(&mut self, id: ClaimId) {
        if let Some(at) = self.by_id.get(&id).copied() {
            self.change(at, |entry| entry.removed = true);
        }
    }

    /// What the verbs changed since it was last [`written`](Self::mark_written), in the order of the first changes.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        let changed = self.changed.iter().map(|at| &self.entries[*at]);
        let rows = changed.filter_map(|entry| match (entry.removed, entry.stored) {
            (true, None) => None,
            (true, Some(stored)) => Some(Change::Delete(&entry.row, stored)),
            (false, None) => Some(Change::Insert(&entry.row)),
            (false, Some(stored)) => Some(Change::Update(&entry.row, stored)),
        });
        let counter = self.counter_changed.then_some(Change::Counter(self.counter));
        rows.chain(counter)
    }

    /// Notes that the database has all [`changes`](Self::changes).
    pub(crate) fn mark_written(&mut self) {
        for at in self.changed.drain(..) {
            let entry = &mut self.entries[at];
            entry.changed = false;
            entry.stored = (!entry.removed).then_some(entry.row.phase);
        }
        self.counter_changed = false;
    }

    /// Notes that somebody else may go now who could not before.
    pub(crate) fn request_wake(&mut self) {
        self.needs_wake = true;
    }

    /// Whether somebody may go now who could not before: then all who wait or watch may have to be woken.
    pub(crate) fn needs_wake(&self) -> bool {
        self.needs_wake
    }

    /// Everybody who waits or watches.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = ClaimId> {
        self.ranked(Phase::Watching..=Phase::Waiting).map(|row| row.id)
    }

    /// A number that another state of the key very likely does not have: who is there and in which phase, not for
    /// how long.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for row in self.ranked(Phase::Evicted..=Phase::Granted) {
            (row.id, row.phase as u8, row.reserved_until).hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Row> {
        self.ranked(Phase::Granted..=Phase::Granted)
    }

    /// The live members of the queue, in their order.
    pub(crate) fn queue(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.ranked(Phase::Waiting..=Phase::Waiting)
    }

    /// The live watchers, who has watched longest first.
    pub(crate) fn watchers(&self) -> impl Iterator<Item = &Row> {
        self.ranked(Phase::Watching..=Phase::Watching)
    }

    /// The rows of those phases that count, by phase and place.
    fn ranked(&self, phases: RangeInclusive<Phase>) -> impl DoubleEndedIterator<Item = &Row> {
        let (first, last) = phases.into_inner();
        let range = (first, i64::MIN, 0)..=(last, i64::MAX, usize::MAX);
        self.ranks.range(range).map(|(_, _, at)| &self.entries[*at].row)
    }

    /// The watchers for whom the key is kept at this moment, but for those of `asker`.
    pub(crate) fn reservations(&self, asker: ClientId) -> impl Iterator<Item = &Row> {
        let now = self.now();
        self.watchers()
            .filter(move |row| now < row.reserved_until && row.id.client() != asker)
    }

    /// Until when the key admits nobody.
    pub(crate) fn cooldown_until(&self) -> Option<Instant> {
        self.ranked(Phase::Evicted..=Phase::Evicted)
            .map(|row| row.reserved_until)
            .max()
    }

    /// Refuses a mode of another kind than the key's holders and queue members.
    pub(crate) fn check_kind(&self, asked: Mode) -> Result<(), BackendError> {
        let mut kinds = self.holders().chain(self.queue()).map(|row| row.mode.kind());
        match kinds.find(|held| *held != asked.kind()) {
            Some(held) => Err(BackendError::mismatch(held, asked.kind())),
            None => Ok(()),
        }
    }

    /// The kind of the key, while it has one.
    pub(crate) fn kind(&self) -> Option<Kind> {
        let row = self.holders().chain(self.queue()).next();
        row.map(|row| row.mode.kind())
    }

    /// Draws a run of tokens, greater than all drawn on this key before.
    pub(crate) fn draw(&mut self, asked: std::num::NonZeroU32) -> Result<TokenRange, BackendError> {
        let count = LIMITS.grants(asked);
        let first = self.counter.saturating_add(1).max(self.at.wall_micros);
        let run = tenure_backend::FencingToken::new(first).and_then(|first| TokenRange::new(first, count));
        let run = run.ok_or_else(|| {
            BackendError::new(
                Fault::Store,
                Effect::None,
                "the fencing tokens are used up: the counter stands at the greatest number there is, \
                 so the store, or the system clock once, was not in order",
            )
        })?;
        self.raise_counter(run.last().get());
        Ok(run)
    }

    /// Makes the counter at least `token`.
    pub(crate) fn raise_counter(&mut self, token: u64) {
        if self.counter < token {
            self.counter = token;
            self.counter_changed = true;
        }
    }
}
