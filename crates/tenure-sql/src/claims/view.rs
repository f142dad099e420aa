//! Everything a verb may know about one key at one moment, and what it changed.
//! Verbs are in the files beside this one; a dialect fills a view and writes its changes in the same transaction.

use std::hash::{DefaultHasher, Hash, Hasher};

use tenure_backend::{
    BackendError, ClaimId, ClientId, Effect, Fault, Instant, Kind, LockKey, Mode, TokenRun,
};

use super::{Phase, Row};
use crate::profile;

/// One moment on both clocks, read by a dialect once it has the write lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// On the clock that counts leases.
    pub(crate) now: Instant,
    /// The wall clock, for tokens alone.
    pub(crate) wall_micros: u64,
}

/// The rows of one key.
///
/// A dialect reads all rows of the key that are not [`Phase::Ended`], those of the claims it was asked about in
/// any phase, and the key's token counter.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) key: LockKey,
    pub(crate) at: Moment,
    entries: Vec<Entry>,
    counter: u64,
    counter_changed: bool,
    stirred: bool,
}

#[derive(Debug)]
struct Entry {
    row: Row,
    /// The phase that the database has it in, if it has it.
    stored: Option<Phase>,
    change: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    AsRead,
    Changed,
    Removed,
}

/// What a dialect has to write. All of it in the transaction in which the view was read.
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
    pub(crate) fn new(key: LockKey, at: Moment, counter: u64) -> Self {
        View {
            key,
            at,
            entries: Vec::new(),
            counter,
            counter_changed: false,
            stirred: false,
        }
    }

    /// Adds a row as the database has it.
    pub(crate) fn add(&mut self, row: Row) {
        self.entries.push(Entry {
            stored: Some(row.phase),
            row,
            change: State::AsRead,
        });
    }

    pub(crate) fn now(&self) -> Instant {
        self.at.now
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        let there = |entry: &&Entry| entry.change != State::Removed;
        self.entries.iter().filter(there).map(|entry| &entry.row)
    }

    /// The claim's row, in whatever phase, expired or not.
    pub(crate) fn row(&self, id: ClaimId) -> Option<&Row> {
        self.rows().find(|row| row.id == id)
    }

    /// Inserts the row, or replaces the one of the same claim.
    pub(crate) fn put(&mut self, row: Row) {
        match self.entries.iter_mut().find(|entry| entry.row.id == row.id) {
            Some(entry) => {
                entry.row = row;
                entry.change = State::Changed;
            }
            None => self.entries.push(Entry {
                row,
                stored: None,
                change: State::Changed,
            }),
        }
    }

    pub(crate) fn remove(&mut self, id: ClaimId) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.row.id == id) {
            entry.change = State::Removed;
        }
    }

    /// What the verbs changed, in the order in which the rows were read or put.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        let rows = self
            .entries
            .iter()
            .filter_map(|entry| match (entry.change, entry.stored) {
                (State::AsRead, _) | (State::Removed, None) => None,
                (State::Changed, None) => Some(Change::Insert(&entry.row)),
                (State::Changed, Some(stored)) => Some(Change::Update(&entry.row, stored)),
                (State::Removed, Some(stored)) => Some(Change::Delete(&entry.row, stored)),
            });
        let counter = self.counter_changed.then_some(Change::Counter(self.counter));
        rows.chain(counter)
    }

    /// Notes that somebody else may go now who could not before.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }

    /// Who may have to be woken: everybody who waits or watches, if somebody may go now who could not before.
    pub(crate) fn to_wake(&self) -> impl Iterator<Item = ClaimId> {
        let waits =
            |row: &&Row| matches!(row.phase, Phase::Watching | Phase::Waiting) && row.lasts(self.now());
        let stirred = self.stirred;
        self.rows()
            .filter(move |_| stirred)
            .filter(waits)
            .map(|row| row.id)
    }

    /// A number that another state of the key very likely does not have: who is there and in which phase, not for
    /// how long.
    pub(crate) fn state(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for row in self.rows().filter(|row| row.lasts(self.now())) {
            (row.id, row.phase as u8, row.reserved).hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = &Row> {
        self.lasting(Phase::Granted)
    }

    /// The live members of the queue, in no order.
    pub(crate) fn queue(&self) -> impl Iterator<Item = &Row> {
        self.lasting(Phase::Waiting)
    }

    pub(crate) fn watchers(&self) -> impl Iterator<Item = &Row> {
        self.lasting(Phase::Watching)
    }

    fn lasting(&self, phase: Phase) -> impl Iterator<Item = &Row> {
        let now = self.now();
        self.rows()
            .filter(move |row| row.phase == phase && row.lasts(now))
    }

    /// The watchers for whom the key is kept at this moment, but for those of `asker`.
    pub(crate) fn turns(&self, asker: ClientId) -> impl Iterator<Item = &Row> {
        let now = self.now();
        self.watchers()
            .filter(move |row| now < row.reserved && row.id.client() != asker)
    }

    /// Until when the key admits nobody.
    pub(crate) fn barred_until(&self) -> Option<Instant> {
        let now = self.now();
        let bars = self
            .rows()
            .filter(|row| row.phase == Phase::Evicted)
            .map(|row| row.reserved);
        bars.filter(|until| now < *until).max()
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
    pub(crate) fn draw(&mut self, asked: std::num::NonZeroU32) -> Result<TokenRun, BackendError> {
        let count = asked.min(profile::LIMITS.max_grants);
        let first = self.counter.saturating_add(1).max(self.at.wall_micros);
        let run = tenure_backend::FencingToken::new(first).and_then(|first| TokenRun::new(first, count));
        let run = run.ok_or_else(|| {
            BackendError::new(
                Fault::Store,
                Effect::None,
                "the fencing tokens are used up: the counter stands at the greatest number there is, \
                 so the store, or the system clock once, was not in order",
            )
        })?;
        self.lift_counter(run.last().get());
        Ok(run)
    }

    /// Makes the counter at least `token`.
    pub(crate) fn lift_counter(&mut self, token: u64) {
        if self.counter < token {
            self.counter = token;
            self.counter_changed = true;
        }
    }
}
