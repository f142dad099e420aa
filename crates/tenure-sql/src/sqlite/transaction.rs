//! A write transaction as the claim logic uses it, and a cache for the views (the rows in memory) of keys with many
//! waiters.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use smallvec::SmallVec;
use tenure_backend::{ClaimId, LockKey};

use super::tables::{Tables, Written};
use crate::claims::{Moment, View};

/// Maximum number of rows in the cache, about 20 MiB.
const MAX_CACHED_ROWS: usize = 1 << 16;

/// Claims of a request. Their rows are read even if the claims have ended.
pub(super) type Ids = SmallVec<[ClaimId; 2]>;

pub(super) struct Transaction<'a, 'c> {
    pub(super) at: Moment,
    pub(super) tables: &'a mut Tables<'c>,
    pub(super) cache: &'a mut ViewCache,
    /// The views read so far. Each key is read once, however many requests concern it.
    pub(super) views: HashMap<LockKey, View>,
    pub(super) written: Written,
}

impl Transaction<'_, '_> {
    /// Reads the view of a key with the rows of `ids`, lets `decide` change it, and writes the changes. After an
    /// error, the caller must roll back the whole transaction.
    pub(super) fn visit<T>(
        &mut self,
        key: &LockKey,
        ids: Ids,
        decide: impl FnOnce(&mut View) -> T,
    ) -> rusqlite::Result<T> {
        let view = match self.views.entry(key.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match self.cache.views.remove(key) {
                Some(cached) => entry.insert(cached.advance_to(self.at)),
                None => entry.insert(self.tables.read_view(key, self.at)?),
            },
        };
        self.tables.read_claims(view, &ids)?;
        let decided = decide(view);
        self.written.add(self.tables.write(view)?);
        Ok(decided)
    }
}

/// Long views, cached between transactions: reading a thousand waiters takes longer than the rest of a hand-over.
///
/// A view is valid until another connection changes the file. A transaction removes each view that it uses and puts
/// it back after its commit, so that a failed transaction leaves no changed view behind.
#[derive(Debug, Default)]
pub(super) struct ViewCache {
    views: HashMap<LockKey, View>,
    /// `PRAGMA data_version` when the views were cached. It changes if another connection commits.
    version: i64,
}

impl ViewCache {
    /// Drops all views if another connection has committed. The caller has begun a transaction.
    pub(super) fn check(&mut self, tables: &mut Tables<'_>) {
        if !self.views.is_empty() && tables.version().ok() != Some(self.version) {
            self.clear();
        }
    }

    /// Drops all views. They may have rows that another connection has changed, or that the sweep (deletion of old
    /// rows) has deleted.
    pub(super) fn clear(&mut self) {
        self.views.clear();
    }

    /// Caches the long views of a committed transaction. `version` is its `data_version`.
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
