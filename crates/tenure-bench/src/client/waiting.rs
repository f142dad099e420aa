//! Keys of a bare store, and how a careful person waits for one: the tasks of one process queue at a `tokio::sync::Mutex`
//! of the key, so that one of them asks the store, with a pause after each refusal that doubles, and that no two have alike.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};

use super::Lock;
use crate::Fallible;

/// The pause after a refusal: doubled each time up to the longest, and shortened by a random part of up to a half.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// A store by its own statements, without a library.
pub(crate) trait BareStore: Send + Sync + 'static {
    /// Takes the key for this holder; says whether it was free.
    fn take(&self, key: &str, holder: i64) -> impl Future<Output = Fallible<bool>> + Send;

    /// Frees the key; says whether it was still this holder's.
    fn free(&self, key: &str, holder: i64) -> impl Future<Output = Fallible<bool>> + Send;
}

/// A key of such a store, as one worker sees it.
pub(crate) struct Key<S> {
    name: String,
    store: Arc<S>,
    queue: Arc<Mutex<()>>,
}

/// A number that the store has stored with the key, and the turn of this process, which ends with it.
pub(crate) struct Held {
    holder: i64,
    _turn: OwnedMutexGuard<()>,
}

/// Keys of this store.
pub(crate) fn keys<S>(store: S) -> impl FnMut(&str) -> Key<S> {
    let (store, mut queues) = (Arc::new(store), mutexes());
    move |name| Key {
        name: name.to_owned(),
        store: store.clone(),
        queue: queues(name),
    }
}

/// A mutex for each key, the same one whenever the key is the same.
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

/// A number that differs from call to call and from process to process.
fn random() -> u64 {
    RandomState::new().hash_one(())
}
