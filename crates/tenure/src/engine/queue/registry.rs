//! The queues of a client: one for each key and kind of lock in use.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use parking_lot::Mutex;
use tenure_backend::LockKey;

const SHARDS: usize = 16;

/// An item, and the hash of its key. The key itself is only in the item.
#[derive(Debug)]
struct Entry<T> {
    hash: u64,
    item: Weak<T>,
}

/// A table of weak references to items (queues), by key and kind.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    hasher: RandomState,
    shards: [Mutex<HashTable<Entry<T>>>; SHARDS],
    is_closed: AtomicBool,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            is_closed: AtomicBool::new(false),
        }
    }
}

impl<T> Registry<T> {
    fn hash(&self, key: &LockKey) -> u64 {
        self.hasher.hash_one(key)
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Entry<T>>> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// The item of a key and kind. If there is none, `make` makes it, given the key and whether the client is closed.
    /// `is_for` rejects items of another kind, and of other keys with the same hash.
    pub(crate) fn get(
        &self,
        key: LockKey,
        is_for: impl Fn(&T, &LockKey) -> bool,
        make: impl FnOnce(LockKey, bool) -> T,
    ) -> Arc<T> {
        let hash = self.hash(&key);
        let mut shard = self.shard(hash).lock();
        // Items of other keys with the same hash. Dropped after the shard is unlocked, because an item's drop locks
        // the shard.
        let mut others = Vec::new();
        let mut found = None;
        for entry in shard.iter_hash(hash).filter(|entry| entry.hash == hash) {
            match entry.item.upgrade() {
                Some(item) if is_for(&item, &key) => found = Some(item),
                other => others.extend(other),
            }
        }
        let item = found.unwrap_or_else(|| {
            let item = Arc::new(make(key, self.is_closed.load(Ordering::SeqCst)));
            let entry = Entry {
                hash,
                item: Arc::downgrade(&item),
            };
            shard.insert_unique(hash, entry, |entry| entry.hash);
            item
        });
        drop(shard);
        item
    }

    /// The items of a key, of each kind. May have items of other keys with the same hash.
    pub(crate) fn of_key(&self, key: &LockKey) -> Vec<Arc<T>> {
        let hash = self.hash(key);
        let shard = self.shard(hash).lock();
        let entries = shard.iter_hash(hash).filter(|entry| entry.hash == hash);
        entries.filter_map(|entry| entry.item.upgrade()).collect()
    }

    /// Removes the entries of a key whose item was dropped.
    pub(crate) fn forget(&self, key: &LockKey) {
        let hash = self.hash(key);
        let mut shard = self.shard(hash).lock();
        while let Ok(dead) =
            shard.find_entry(hash, |entry| entry.hash == hash && entry.item.strong_count() == 0)
        {
            dead.remove();
        }
    }

    /// Makes all later items start as closed. Returns the items so far.
    pub(crate) fn close(&self) -> Vec<Arc<T>> {
        self.is_closed.store(true, Ordering::SeqCst);
        self.all()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().iter().filter_map(|entry| entry.item.upgrade()));
        }
        all
    }

    /// The number of entries, including those of dropped items that were not forgotten.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LockKey {
        LockKey::new(name).expect("the key is valid")
    }

    fn get(registry: &Registry<LockKey>, name: &str) -> Arc<LockKey> {
        let is_for = |item: &LockKey, key: &LockKey| item == key;
        registry.get(key(name), is_for, |key, _| key)
    }

    #[test]
    fn a_key_has_one_item_while_somebody_has_it() {
        let registry = Registry::default();
        let item = get(&registry, "a");
        assert!(Arc::ptr_eq(&item, &get(&registry, "a")));
        assert!(!Arc::ptr_eq(&item, &get(&registry, "b")));
    }

    #[test]
    fn only_dropped_items_are_forgotten() {
        let registry = Registry::default();
        let (a, b) = (get(&registry, "a"), get(&registry, "b"));
        registry.forget(&a);
        assert!(Arc::ptr_eq(&a, &get(&registry, "a")), "the item is in use");
        drop(b);
        registry.forget(&a);
        assert_eq!(registry.entries(), 2);
        registry.forget(&key("b"));
        assert_eq!(registry.entries(), 1);
    }

    #[test]
    fn closing_returns_all_items_and_marks_later_ones() {
        let registry = Registry::default();
        let items = [get(&registry, "a"), get(&registry, "b")];
        let mut closed = registry.close();
        closed.sort();
        assert_eq!(closed, items);
        let is_for = |item: &LockKey, key: &LockKey| item == key;
        let mut is_closed = false;
        registry.get(key("c"), is_for, |key, closed| {
            is_closed = closed;
            key
        });
        assert!(is_closed);
    }
}
