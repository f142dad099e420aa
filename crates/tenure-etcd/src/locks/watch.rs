//! Wake-ups of waiting claims, and invalidations of held ones.
//!
//! A watch has no start revision: from an earlier revision on, etcd serves a watch only every 100 ms. So a waiter looks again
//! once its watch was created, unless nothing was written meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    Claim, ClaimId, ClientId, Fault, Invalidation, InvalidationQueue, Invalidations, LockKey, Mode,
    WakeSignal, Wakes,
};
use tenure_contenders::Watch;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::names;
use super::placed::Target;
use super::store::Locks;
use crate::client::{Event, NO_PUT, WatchCreateRequest, WatchResponse, range_of_prefix};

/// The pause before a watch that has failed is opened again.
const OPEN_AGAIN: Duration = Duration::from_millis(200);

impl Watch for Locks {
    async fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Wakes {
        let (id, signal) = (claim.at.id, WakeSignal::default());
        let target = self.table.placed(id).and_then(|placed| placed.target);
        let targets = self.watched.begin(id, target);
        let task = tokio::spawn(self.clone().follow(claim, targets, signal.clone()));
        signal.wakes(move || {
            task.abort();
            self.watched.end(id);
        })
    }

    /// By the keys of the client's leases, and the notes of evictors.
    fn invalidations(self: Arc<Self>, client: ClientId, runtime: &Handle) -> Invalidations {
        let queue = InvalidationQueue::default();
        let task = runtime.spawn(self.report(client, queue.clone()));
        queue.invalidations(move || task.abort())
    }
}

impl Locks {
    async fn follow(
        self: Arc<Self>,
        claim: Arc<Claim>,
        mut targets: watch::Receiver<Target>,
        signal: WakeSignal,
    ) {
        loop {
            let target = targets.borrow_and_update().clone();
            let (key, range_end) = match target.clone() {
                Some(key) => (key, Vec::new()),
                None => range_of_prefix(self.names.folder(&claim.at.key)),
            };
            let mut watch = self.client.watch(WatchCreateRequest {
                key,
                range_end,
                // Only readers are let in by a write: a writer's downgrade.
                filters: match claim.mode {
                    Mode::Read => Vec::new(),
                    _ => vec![NO_PUT],
                },
                ..WatchCreateRequest::default()
            });
            let is_unchanged = |update: &WatchResponse| {
                let placed = self.table.placed(claim.at.id);
                update.created && placed.is_some_and(|placed| placed.found_at == update.header.revision)
            };
            loop {
                let update = tokio::select! {
                    update = watch.next() => update,
                    changed = targets.wait_for(|new| *new != target) => match changed {
                        Ok(_) => break,
                        Err(_) => return,
                    },
                };
                match update {
                    Ok(update) if is_unchanged(&update) => {}
                    Ok(_) => signal.notify(),
                    Err(error) if error.fault() == Fault::Closed => return,
                    Err(_) => {
                        signal.notify();
                        sleep(OPEN_AGAIN).await;
                        break;
                    }
                }
            }
        }
    }

    async fn report(self: Arc<Self>, client: ClientId, queue: InvalidationQueue) {
        loop {
            let (key, range_end) = range_of_prefix(names::client_folder(client));
            let mut watch = self.client.watch(WatchCreateRequest {
                key,
                range_end,
                ..WatchCreateRequest::default()
            });
            loop {
                match watch.next().await {
                    // Events may have been missed before.
                    Ok(update) if update.created => queue.push(Invalidation::All),
                    Ok(update) => {
                        for lock in update
                            .events
                            .into_iter()
                            .flat_map(|event| self.changed(client, event))
                        {
                            queue.push(Invalidation::Key(lock));
                        }
                    }
                    Err(error) if error.fault() == Fault::Closed => return,
                    Err(_) => break,
                }
            }
            sleep(OPEN_AGAIN).await;
        }
    }

    /// The locks whose claims may be gone after a change of a key in the client's folder.
    fn changed(&self, client: ClientId, event: Event) -> Vec<LockKey> {
        let key = event.kv.unwrap_or_default().key;
        match names::noted_claim(&key) {
            Some(number) if !event.is_deletion => {
                let lock = self.table.lock_of(ClaimId::new(client, number));
                lock.into_iter().collect()
            }
            None if event.is_deletion => self.table.locks_at(|spot| spot.lease.key.as_bytes() == key),
            _ => Vec::new(),
        }
    }
}
