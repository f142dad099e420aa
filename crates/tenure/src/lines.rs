//! Where a client's lines are found: one for each key and kind that somebody of this client uses.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tenure_backend::{Kind, LockKey};

use crate::engine::Engine;
use crate::line::Line;

const SHARDS: usize = 16;

type Shard = HashMap<(LockKey, Kind), Weak<Line>>;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl Lines {
    fn shard(&self, name: &(LockKey, Kind)) -> &Mutex<Shard> {
        // The high bits: the maps inside use the low ones.
        &self.shards[(self.hasher.hash_one(name) >> 60) as usize % SHARDS]
    }

    /// The line of that key and kind: two names never share one.
    pub(crate) fn get(&self, engine: &Arc<Engine>, key: LockKey, kind: Kind) -> Arc<Line> {
        let name = (key, kind);
        let mut shard = self.shard(&name).lock();
        if let Some(line) = shard.get(&name).and_then(Weak::upgrade) {
            return line;
        }
        let line = Line::new(engine.clone(), name.0.clone(), kind);
        shard.insert(name, Arc::downgrade(&line));
        line
    }

    /// Forgets a line that was dropped, unless another has taken its name.
    pub(crate) fn forget(&self, key: &LockKey, kind: Kind) {
        let name = (key.clone(), kind);
        let mut shard = self.shard(&name).lock();
        if shard.get(&name).is_some_and(|line| line.strong_count() == 0) {
            shard.remove(&name);
        }
    }

    /// All lines there are.
    pub(crate) fn all(&self) -> Vec<Arc<Line>> {
        self.shards
            .iter()
            .flat_map(|shard| {
                shard
                    .lock()
                    .values()
                    .filter_map(Weak::upgrade)
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}
