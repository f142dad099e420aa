//! Wake-ups of waiting claims, and invalidations of held ones.
//!
//! A watch has no start revision: from an earlier revision on, etcd serves a watch only every 100 ms. So a waiter looks again
//! once its watch was created, unless nothing was written meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    Claim, ClaimId, ClientId, Invalidation, InvalidationQueue, Invalidations, WakeSignal, Wakes,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::names;
use super::store::Locks;
use super::targets::Target;
use crate::client::{EventType, Update, WatchCreateRequest, range_of_prefix};

/// The pause before a watch that has failed is opened again.
const OPEN_AGAIN: Duration = Duration::from_millis(200);

impl Locks {
    /// Wakes a claim when what it waits for has changed.
    pub(super) fn watch(self: Arc<Self>, claim: &Claim) -> Wakes {
        let (id, signal) = (claim.at.id, WakeSignal::default());
        let folder = self.names.folder(&claim.at.key);
        let targets = self.watched.begin(id);
        let task = tokio::spawn(self.clone().follow(folder, targets, signal.clone()));
        signal.wakes(move || {
            task.abort();
            self.watched.end(id);
        })
    }

    async fn follow(
        self: Arc<Self>,
        folder: String,
        mut targets: watch::Receiver<(Target, i64)>,
        signal: WakeSignal,
    ) {
        loop {
            let (target, _) = targets.borrow_and_update().clone();
            let (key, range_end) = match target {
                Target::Key(key) => (key, Vec::new()),
                Target::Folder => range_of_prefix(&*folder),
            };
            let mut watch = self.client.watches().watch(WatchCreateRequest {
                key,
                range_end,
                ..WatchCreateRequest::default()
            });
            loop {
                let update = tokio::select! {
                    update = watch.next() => update,
                    changed = targets.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                };
                match update {
                    Ok(Update::Created(header)) if header.revision == targets.borrow().1 => {}
                    Ok(Update::Created(_) | Update::Events(..)) => signal.notify(),
                    Ok(Update::Progress(_)) => {}
                    Ok(Update::Compacted(_)) | Err(_) => {
                        signal.notify();
                        sleep(OPEN_AGAIN).await;
                        break;
                    }
                }
            }
        }
    }

    /// Reports the claims of a client that may be gone, by the bells of its leases and the notes of evictors.
    pub(super) fn invalidations(self: Arc<Self>, client: ClientId, runtime: &Handle) -> Invalidations {
        let queue = InvalidationQueue::default();
        let task = runtime.spawn(self.report(client, queue.clone()));
        queue.invalidations(move || task.abort())
    }

    async fn report(self: Arc<Self>, client: ClientId, queue: InvalidationQueue) {
        loop {
            let (key, range_end) = range_of_prefix(names::client_folder(client));
            let mut watch = self.client.watches().watch(WatchCreateRequest {
                key,
                range_end,
                ..WatchCreateRequest::default()
            });
            while let Ok(update) = watch.next().await {
                match update {
                    // Events may have been missed before.
                    Update::Created(_) => queue.push(Invalidation::All),
                    Update::Events(_, events) => {
                        for event in events {
                            let is_deleted = event.r#type() == EventType::Delete;
                            let key = event.kv.unwrap_or_default().key;
                            self.invalidate(client, &key, is_deleted, &queue);
                        }
                    }
                    Update::Progress(_) | Update::Compacted(_) => {}
                }
            }
            sleep(OPEN_AGAIN).await;
        }
    }

    /// Reports a changed key in the client's folder.
    fn invalidate(&self, client: ClientId, key: &[u8], is_deleted: bool, queue: &InvalidationQueue) {
        match (names::noted_claim(key), is_deleted) {
            (Some(number), false) => {
                let lock = self.table.lock_of(ClaimId::new(client, number));
                lock.into_iter()
                    .for_each(|lock| queue.push(Invalidation::Key(lock)));
            }
            (None, true) => {
                let locks = self.table.on_lease(&String::from_utf8_lossy(key));
                locks
                    .into_iter()
                    .for_each(|lock| queue.push(Invalidation::Key(lock)));
            }
            _ => {}
        }
    }
}
