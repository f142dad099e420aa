//! Wake-ups of waiting claims, and invalidations of held ones.
//!
//! A waiter watches the node of the contender before it by its children: a contender has none, so that this fires when the node
//! is deleted, and not when its data are changed.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    BackendError, Claim, ClaimId, ClientId, Invalidation, InvalidationQueue, Invalidations, WakeSignal, Wakes,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::sleep;

use super::placed::Target;
use super::requests::{MAX_REPEATS, unsettled};
use super::store::Locks;
use crate::client::{Code, Event, Watch, code};
use crate::config::Layout;

/// The pause before a watch that has failed is set again.
const SET_AGAIN: Duration = Duration::from_millis(200);

impl tenure_contenders::Watch for Locks {
    async fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Wakes {
        let (id, signal) = (claim.at.id, WakeSignal::default());
        let lock = self.names.folder(&claim.at.key, claim.mode.kind());
        let target = self.table.placed(id).map(|placed| placed.target);
        let mut targets = self.watched.begin(id, target.unwrap_or_default());
        let target = targets.borrow_and_update().clone();
        // Set before this call returns, so that the poll that follows overlooks no change.
        let first = self.set_watch(id, &target, &lock).await;
        let following = self
            .clone()
            .follow(id, lock, (target, first), targets, signal.clone());
        let task = tokio::spawn(following);
        signal.wakes(move || {
            task.abort();
            self.watched.end(id);
        })
    }

    fn invalidations(self: Arc<Self>, client: ClientId, _: &Handle) -> Invalidations {
        let queue = InvalidationQueue::default();
        queue.push(Invalidation::All);
        self.hints.add(client, queue.clone());
        let added = queue.clone();
        queue.invalidations(move || self.hints.remove(&added))
    }
}

impl Locks {
    async fn follow(
        self: Arc<Self>,
        id: ClaimId,
        lock: String,
        (mut target, mut set): (Target, Result<Option<Watch>, BackendError>),
        mut targets: watch::Receiver<Target>,
        signal: WakeSignal,
    ) {
        loop {
            let mut pause = Duration::ZERO;
            // Whether the claim is woken once the watch is set again: by a poll before that it could overlook a later change.
            let mut wakes_after = false;
            match set {
                Ok(Some(mut watch)) => {
                    tokio::select! {
                        event = watch.fired() => {
                            let is_changed = event != Event::Reconnected && event != Event::SessionEnded;
                            let is_node = matches!(target, Target::Node(_));
                            wakes_after = !is_node;
                            if is_node || !is_changed {
                                signal.notify();
                            }
                            // The next poll finds what the claim waits for now.
                            if is_node && is_changed && targets.changed().await.is_err() {
                                return;
                            }
                            if event == Event::SessionEnded {
                                pause = SET_AGAIN;
                            }
                        }
                        changed = targets.changed() => if changed.is_err() {
                            return;
                        },
                    }
                }
                Ok(None) => {
                    signal.notify();
                    if targets.changed().await.is_err() {
                        return;
                    }
                }
                Err(_) if self.table.is_closed() => return,
                Err(_) => {
                    signal.notify();
                    pause = SET_AGAIN;
                }
            }
            // sleep: no event tells when ZooKeeper answers again.
            sleep(pause).await;
            let before = target;
            target = targets.borrow_and_update().clone();
            set = self.set_watch(id, &target, &lock).await;
            // The folder may have changed since the poll that found it.
            if wakes_after || target != before && matches!(target, Target::Folder(_)) {
                signal.notify();
            }
        }
    }

    /// Sets a watch. `None` if the contender's node is gone. The claim's own session is used, because another one's server may not
    /// have seen yet what wakes the claim.
    async fn set_watch(
        self: &Arc<Self>,
        id: ClaimId,
        target: &Target,
        lock: &str,
    ) -> Result<Option<Watch>, BackendError> {
        let session = match self.table.placed(id) {
            Some(placed) => placed.spot.session,
            None => self.any_session().await?,
        };
        let client = &session.client;
        let (path, is_node) = match target {
            Target::Lock => (lock, false),
            Target::Folder(path) => (&**path, false),
            Target::Node(path) => (&**path, true),
        };
        for _ in 0..MAX_REPEATS {
            if self.config.layout != Layout::Ephemeral {
                match client.get_children_watched(path).await {
                    Ok((.., watch)) => return Ok(Some(watch)),
                    Err(error) if code(&error) != Some(Code::NO_NODE) => return Err(error),
                    Err(_) if is_node => return Ok(None),
                    Err(_) => {}
                }
            }
            match client.exists_watched(path).await? {
                (Some(_), _) if self.config.layout != Layout::Ephemeral => {}
                (_, watch) => return Ok(Some(watch)),
            }
        }
        Err(unsettled())
    }
}
