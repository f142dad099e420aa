//! The view of one key: the rows that a request reads, and the changes that it makes.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::RangeInclusive;

use tenure_backend::{
    BackendError, Claim, ClaimId, Effect, Fairness, Fault, Instant, Kind, LockKey, Mode, Profile, TokenRange,
};

use super::{Phase, Row};

/// A view with at least this many unexpired rows is cached for later transactions.
const MIN_CACHED_ROWS: usize = 32;

/// The time on two clocks. A write transaction reads both after it has taken the write lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Time of the lease clock.
    pub(crate) now: Instant,
    /// Time of the wall clock in µs, used only to draw fencing tokens.
    pub(crate) wall_micros: u64,
}

/// Rows of one key, at one moment.
///
/// A view has all rows of the key that are not [`Phase::Ended`], the rows of the requests' claims in any phase, and
/// the key's token counter. A transaction reads each key once and runs several requests on its view, because a key
/// may have a thousand waiters. The rows are indexed, so that a request need not go through all.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) key: LockKey,
    pub(crate) at: Moment,
    /// What the store promises, and its limits.
    pub(super) profile: &'static Profile,
    entries: Vec<Entry>,
    by_id: HashMap<ClaimId, usize>,
    /// The rows that affect other claims, sorted. [`active_row`](Self::active_row) defines which.
    active: BTreeSet<ActiveRow>,
    /// The entries to write to the table, in the order of their first changes.
    changed: Vec<usize>,
    counter: u64,
    counter_changed: bool,
    /// True if another claim may have become grantable.
    needs_wake: bool,
}

/// Sort key of a row in `View::active`: phase, position, index in `View::entries`.
type ActiveRow = (Phase, i64, usize);

#[derive(Debug)]
struct Entry {
    row: Row,
    /// True if the row must be deleted from the table.
    removed: bool,
    /// The phase of the row in the table; `None` if it is not in the table.
    stored: Option<Phase>,
    /// True if [`View::changed`] lists this entry.
    changed: bool,
}

/// One write to the tables, in the transaction that read the view.
#[derive(Debug)]
pub(crate) enum Change<'a> {
    /// Inserts a row that is not in the table.
    Insert(&'a Row),
    /// Updates a row. The second field is its phase in the table.
    Update(&'a Row, Phase),
    /// Deletes a row. The second field is its phase in the table.
    Delete(&'a Row, Phase),
    /// Stores the key's token counter: the greatest token drawn.
    Counter(u64),
}

impl View {
    pub(crate) fn new(key: LockKey, at: Moment, profile: &'static Profile) -> Self {
        View {
            key,
            at,
            profile,
            entries: Vec::new(),
            by_id: HashMap::new(),
            active: BTreeSet::new(),
            changed: Vec::new(),
            counter: 0,
            counter_changed: false,
            needs_wake: false,
        }
    }

    /// Moves a cached view to a later time. The caller ensures that no other connection changed the rows meanwhile.
    pub(crate) fn advance_to(mut self, at: Moment) -> Self {
        self.at = at;
        self.needs_wake = false;
        let expired = |row: &&ActiveRow| self.active_row(row.2).is_none();
        let expired: Vec<ActiveRow> = self.active.iter().filter(expired).copied().collect();
        for row in expired {
            self.active.remove(&row);
        }
        self
    }

    pub(crate) fn rows(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the view is worth caching: it has many rows, and at least half of them are unexpired.
    pub(crate) fn is_worth_caching(&self) -> bool {
        MIN_CACHED_ROWS <= self.active.len() && self.entries.len() <= 2 * self.active.len()
    }

    /// Adds a row read from the table, with the time of its last write.
    ///
    /// A row that was written later than now is of an earlier boot, because the clock starts again with the machine. It is
    /// marked as deleted.
    pub(crate) fn add(&mut self, row: Row, written_at: Instant) {
        let is_of_earlier_boot = self.now() < written_at;
        let stored = Some(row.phase);
        let at = self.append(row, stored);
        if is_of_earlier_boot {
            self.change(at, |entry| entry.removed = true);
        }
    }

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
        self.active.extend(self.active_row(at));
        at
    }

    /// Sort key of a row that affects other claims: an evicted row during its cooldown, or another row that has
    /// neither ended nor expired. `None` for the rest.
    fn active_row(&self, at: usize) -> Option<ActiveRow> {
        let Entry { row, removed, .. } = &self.entries[at];
        let is_active = match row.phase {
            Phase::Ended => false,
            Phase::Evicted => self.now() < row.reserved_until,
            Phase::Watching | Phase::Waiting | Phase::Granted => row.is_unexpired(self.now()),
        };
        (is_active && !removed).then_some((row.phase, row.position, at))
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Entry)) {
        if let Some(row) = self.active_row(at) {
            self.active.remove(&row);
        }
        change(&mut self.entries[at]);
        self.active.extend(self.active_row(at));
        if !std::mem::replace(&mut self.entries[at].changed, true) {
            self.changed.push(at);
        }
    }

    /// The claim's row, in any phase, expired or not.
    pub(crate) fn row(&self, id: ClaimId) -> Option<&Row> {
        let entry = &self.entries[*self.by_id.get(&id)?];
        (!entry.removed).then_some(&entry.row)
    }

    /// Inserts the row, or replaces the claim's row.
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

    /// The changes to write to the tables: rows in the order of their first changes, then the counter.
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

    /// Records that all [`changes`](Self::changes) are in the tables.
    pub(crate) fn mark_written(&mut self) {
        for at in self.changed.drain(..) {
            let entry = &mut self.entries[at];
            entry.changed = false;
            entry.stored = (!entry.removed).then_some(entry.row.phase);
        }
        self.counter_changed = false;
    }

    /// Records that another claim may be grantable, so that the key's waiters are checked after the commit.
    pub(crate) fn request_wake(&mut self) {
        self.needs_wake = true;
    }

    /// Returns whether the key's waiters must be checked after the commit.
    pub(crate) fn needs_wake(&self) -> bool {
        self.needs_wake
    }

    /// Queued claims and watchers (unfair waiters).
    pub(crate) fn waiters(&self) -> impl Iterator<Item = ClaimId> {
        self.active_rows(Phase::Watching..=Phase::Waiting)
            .map(|row| row.id)
    }

    /// A hash of the key's unexpired rows: claim, phase, mode, and until when the key is reserved for a woken waiter.
    /// A renewal changes the hash only if it is a downgrade.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for row in self.active_rows(Phase::Evicted..=Phase::Granted) {
            (row.id, row.phase as u8, row.mode, row.reserved_until).hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Row> {
        self.active_rows(Phase::Granted..=Phase::Granted)
    }

    /// Queued claims, in the order of the queue.
    pub(crate) fn queue(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.active_rows(Phase::Waiting..=Phase::Waiting)
    }

    /// The watchers (unfair waiters), oldest registration first.
    pub(crate) fn watchers(&self) -> impl Iterator<Item = &Row> {
        self.active_rows(Phase::Watching..=Phase::Watching)
    }

    /// Unexpired rows in these phases, sorted by phase and position.
    fn active_rows(&self, phases: RangeInclusive<Phase>) -> impl DoubleEndedIterator<Item = &Row> {
        let (first, last) = phases.into_inner();
        let range = (first, i64::MIN, 0)..=(last, i64::MAX, usize::MAX);
        self.active.range(range).map(|(_, _, at)| &self.entries[*at].row)
    }

    /// The watchers (unfair waiters) of other clients that the store has woken, and for which it keeps the freed key
    /// now. A fair claim ignores them and obeys the queue.
    pub(crate) fn reservations_against(&self, claim: &Claim) -> impl Iterator<Item = &Row> {
        let (now, client, fairness) = (self.now(), claim.at.id.client(), claim.fairness);
        self.watchers().filter(move |row| {
            fairness == Fairness::Unfair && now < row.reserved_until && row.id.client() != client
        })
    }

    /// End of the cooldown after an eviction; until then no claim is granted.
    pub(crate) fn cooldown_until(&self) -> Option<Instant> {
        self.active_rows(Phase::Evicted..=Phase::Evicted)
            .map(|row| row.reserved_until)
            .max()
    }

    /// Refuses a mode if the key's holders or queued claims use the key as another kind of lock, such as a semaphore.
    pub(crate) fn check_kind(&self, asked: Mode) -> Result<(), BackendError> {
        let mut kinds = self.holders().chain(self.queue()).map(|row| row.mode.kind());
        match kinds.find(|held| *held != asked.kind()) {
            Some(held) => Err(BackendError::mismatch(held, asked.kind())),
            None => Ok(()),
        }
    }

    /// The kind of lock that the key is used as; `None` without holders and queued claims.
    pub(crate) fn kind(&self) -> Option<Kind> {
        let row = self.holders().chain(self.queue()).next();
        row.map(|row| row.mode.kind())
    }

    /// Draws `asked` consecutive tokens (at most 1024), greater than all drawn on this key before.
    pub(crate) fn draw(&mut self, asked: std::num::NonZeroU32) -> Result<TokenRange, BackendError> {
        let count = self.profile.limits.grants(asked);
        let first = self.counter.saturating_add(1).max(self.at.wall_micros);
        let tokens = tenure_backend::FencingToken::new(first).and_then(|first| TokenRange::new(first, count));
        let tokens = tokens.ok_or_else(|| {
            BackendError::new(
                Fault::Store,
                Effect::None,
                "the fencing tokens are used up: their counter has reached its maximum, because the store was damaged \
                 or the system clock was once far in the future",
            )
        })?;
        self.raise_counter(tokens.last().get());
        Ok(tokens)
    }

    /// Raises the key's token counter to `token` if it is lower.
    pub(crate) fn raise_counter(&mut self, token: u64) {
        if self.counter < token {
            self.counter = token;
            self.counter_changed = true;
        }
    }
}
