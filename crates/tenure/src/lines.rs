//! Where a client's lines are found: one for each key and kind that somebody of this client uses.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use parking_lot::Mutex;
use tenure_backend::{Kind, LockKey};

use crate::engine::Engine;
use crate::line::Line;

const SHARDS: usize = 16;

/// A line, with the hash of its name: the name itself is the line's.
#[derive(Debug)]
struct Known {
    hash: u64,
    line: Weak<Line>,
}

#[derive(Debug, Default)]
pub(crate) struct Lines {
    hasher: RandomState,
    shards: [Mutex<HashTable<Known>>; SHARDS],
}

impl Lines {
    fn hash(&self, key: &LockKey, kind: Kind) -> u64 {
        self.hasher.hash_one((key, kind))
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Known>> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// The line of that key and kind: two names never share one.
    pub(crate) fn get(&self, engine: &Arc<Engine>, key: LockKey, kind: Kind) -> Arc<Line> {
        let hash = self.hash(&key, kind);
        let mut shard = self.shard(hash).lock();
        // Lines of other names are let go only after the shard is unlocked: a line's drop comes here.
        let mut others = Vec::new();
        let mut found = None;
        for known in shard.iter_hash(hash).filter(|known| known.hash == hash) {
            match known.line.upgrade() {
                Some(line) if line.is_for(&key, kind) => found = Some(line),
                other => others.extend(other),
            }
        }
        let line = found.unwrap_or_else(|| {
            let line = Line::new(engine.clone(), key, kind);
            shard.insert_unique(
                hash,
                Known {
                    hash,
                    line: Arc::downgrade(&line),
                },
                |known| known.hash,
            );
            line
        });
        drop(shard);
        line
    }

    /// Forgets lines of that name's hash that were dropped.
    pub(crate) fn forget(&self, key: &LockKey, kind: Kind) {
        let hash = self.hash(key, kind);
        let mut shard = self.shard(hash).lock();
        while let Ok(dead) =
            shard.find_entry(hash, |known| known.hash == hash && known.line.strong_count() == 0)
        {
            dead.remove();
        }
    }

    /// All lines there are, in the order of their keys: what is done to all is then done in the same order each time.
    pub(crate) fn all(&self) -> Vec<Arc<Line>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().iter().filter_map(|known| known.line.upgrade()));
        }
        all.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        all
    }
}
