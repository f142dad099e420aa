//! Locks on a store, without a lock library. The tasks of a process queue at a `tokio::sync::Mutex` for each key, so
//! only one of them polls the store for the key. It doubles its pause after each refusal, up to 16 ms, with jitter.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::Lock;
use crate::Fallible;

/// Pause after the first refusal. It doubles up to `LONGEST`, and is shortened by a random part of up to a half.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// A store used through its own statements, without a library.
pub(crate) trait BareStore: Send + Sync + 'static {
    /// Tries to lock the key for this holder. Returns whether it was free.
    fn take(&self, key: &str, holder: i64) -> impl Future<Output = Fallible<bool>> + Send;

    /// Frees the key. Returns whether this holder still held it.
    fn free(&self, key: &str, holder: i64) -> impl Future<Output = Fallible<bool>> + Send;
}

/// One worker's handle to a key that it locks with the store's own statements, without a lock library.
pub(crate) struct Key<S> {
    name: String,
    store: Arc<S>,
    queue: Arc<Mutex<()>>,
}

/// A held key: the holder's number in the store, and the local mutex, which the next task gets on drop.
pub(crate) struct Held {
    holder: i64,
    _turn: OwnedMutexGuard<()>,
}

/// Returns a function that makes keys of this store.
pub(crate) fn keys<S>(store: S) -> impl FnMut(&str) -> Key<S> {
    let (store, mut queues) = (Arc::new(store), mutexes());
    move |name| Key {
        name: name.to_owned(),
        store: store.clone(),
        queue: queues(name),
    }
}

/// Returns a function that maps each key to a mutex, at which the tasks of this process queue.
pub(crate) fn mutexes() -> impl FnMut(&str) -> Arc<Mutex<()>> {
    let mut mutexes = HashMap::<String, Arc<Mutex<()>>>::new();
    move |key| mutexes.entry(key.to_owned()).or_default().clone()
}

impl<S: BareStore> Lock for Key<S> {
    type Guard = Held;

    async fn lock(&self) -> Fallible<Held> {
        let holder = random().cast_signed();
        let turn = self.queue.clone().lock_owned().await;
        let mut pause = SHORTEST;
        while !self.store.take(&self.name, holder).await? {
            let part = (random() % 512) as f64 / 1024.0;
            tokio::time::sleep(pause.mul_f64(1.0 - part)).await;
            pause = (pause * 2).min(LONGEST);
        }
        Ok(Held { holder, _turn: turn })
    }

    async fn unlock(&self, held: Held) -> Fallible<()> {
        match self.store.free(&self.name, held.holder).await? {
            true => Ok(()),
            false => Err("the key was no longer this holder's".into()),
        }
    }
}

/// A random number, different in each call and in each process.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
