//! One write transaction as the claim logic sees it, and the views of long queues that outlive it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use smallvec::SmallVec;
use tenure_backend::{ClaimId, LockKey};

use super::tables::{Tables, Written};
use crate::claims::{Moment, View};

/// How many rows are kept at the most: some 20 MiB.
const MAX_CACHED_ROWS: usize = 1 << 16;

/// The claims whose rows a step needs, whatever their phase.
pub(crate) type Ids = SmallVec<[ClaimId; 2]>;

/// A transaction under way.
pub(crate) struct Transaction<'a, 'c> {
    pub(super) at: Moment,
    pub(super) tables: &'a mut Tables<'c>,
    pub(super) cache: &'a mut ViewCache,
    /// The keys that were visited: each is read once, however many requests are for it.
    pub(super) views: HashMap<LockKey, View>,
    pub(super) written: Written,
}

impl Transaction<'_, '_> {
    /// Reads the view of a key with the rows of `ids`, lets `decide` change it, and writes what changed. If it fails,
    /// the whole transaction is to be undone.
    pub(crate) fn visit<T>(
        &mut self,
        key: &LockKey,
        ids: Ids,
        decide: impl FnOnce(&mut View) -> T,
    ) -> rusqlite::Result<T> {
        let view = match self.views.entry(key.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => match self.cache.views.remove(key) {
                Some(cached) => unknown.insert(cached.advance_to(self.at)),
                None => unknown.insert(self.tables.read_view(key, self.at)?),
            },
        };
        self.tables.read_claims(view, &ids)?;
        let decided = decide(view);
        self.written.add(self.tables.write(view)?);
        Ok(decided)
    }
}

/// Long views that are true as long as nobody but this connection changes the file: to read a thousand waiters takes
/// longer than all else that a hand-over does. Whoever visits a key takes its view away, so that one which a failed
/// transaction changed is not found again.
#[derive(Debug, Default)]
pub(super) struct ViewCache {
    views: HashMap<LockKey, View>,
    /// Changes with each commit of another connection.
    version: i64,
}

impl ViewCache {
    /// Drops everything that may not be true any more. The transaction has begun.
    pub(super) fn check(&mut self, tables: &mut Tables<'_>) {
        if !self.views.is_empty() && tables.version().ok() != Some(self.version) {
            self.clear();
        }
    }

    /// Rows were changed, but by no verb.
    pub(super) fn clear(&mut self) {
        self.views.clear();
    }

    /// Keeps what is worth it of a transaction that was committed. `version` was read in it.
    pub(super) fn insert(&mut self, views: HashMap<LockKey, View>, version: i64) {
        self.version = version;
        let mut rows: usize = self.views.values().map(View::rows).sum();
        for (key, view) in views {
            if view.is_worth_caching() && rows + view.rows() <= MAX_CACHED_ROWS {
                rows += view.rows();
                self.views.insert(key, view);
            }
        }
    }
}
