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

use super::contenders::Target;
use super::requests::{MAX_REPEATS, unsettled};
use super::store::Locks;
use crate::client::{Event, Watch};
use crate::config::Layout;
use crate::error::found;

/// The pause before a watch that has failed is set again.
const SET_AGAIN: Duration = Duration::from_millis(200);

impl tenure_contenders::Watch for Locks {
    async fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Wakes {
        let (id, signal) = (claim.at.id, WakeSignal::default());
        let target = self.table.placed(id).and_then(|placed| placed.target);
        let target = target.unwrap_or_else(|| {
            let lock = self.names.folder(&claim.at.key, claim.mode.kind());
            Target::Folder(lock)
        });
        let mut targets = self.watched.begin(id, target);
        let target = targets.borrow_and_update().clone();
        // Set before this call returns, so that the poll that follows overlooks no change.
        let first = self.set_watch(id, &target).await;
        let following = self.clone().follow(id, (target, first), targets, signal.clone());
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
    /// Returns `None` when the claim is watched no longer.
    async fn follow(
        self: Arc<Self>,
        id: ClaimId,
        (mut target, mut set): (Target, Result<Option<Watch>, BackendError>),
        mut targets: watch::Receiver<Target>,
        signal: WakeSignal,
    ) -> Option<()> {
        loop {
            let event = match set {
                Ok(Some(mut watch)) => tokio::select! {
                    event = watch.fired() => Some(event),
                    changed = targets.wait_for(|new| *new != target) => changed.map(|_| None).ok()?,
                },
                Ok(None) => Some(Event::Deleted),
                Err(_) if self.table.is_closed() => return None,
                Err(_) => Some(Event::SessionEnded),
            };
            match (event, &target) {
                (None, _) => {}
                (Some(Event::Reconnected), _) => signal.notify(),
                (Some(Event::SessionEnded), _) => {
                    signal.notify();
                    // sleep: no event tells when ZooKeeper answers again.
                    sleep(SET_AGAIN).await;
                }
                // The claim is woken when the watch is set again: a poll before that could overlook a later change.
                (_, Target::Folder(_)) => {}
                // The node has gone. A poll finds what the claim waits for next. If it finds the same node, it has asked a
                // server that does not know of the change yet: the watch is set again, and fires when that server knows.
                (_, Target::Node(_)) => {
                    signal.notify();
                    targets.changed().await.ok()?;
                }
            }
            let before = target;
            target = targets.borrow_and_update().clone();
            set = self.set_watch(id, &target).await;
            // The folder may have changed since it was read last.
            if matches!(target, Target::Folder(_)) && (event.is_some() || target != before) {
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
    ) -> Result<Option<Watch>, BackendError> {
        let session = match self.table.placed(id) {
            Some(placed) => placed.spot.session,
            None => self.any_session().await?,
        };
        let client = &session.client;
        let (path, is_node) = match target {
            Target::Folder(path) => (path, false),
            Target::Node(path) => (path, true),
        };
        for _ in 0..MAX_REPEATS {
            if self.config.layout != Layout::Ephemeral {
                match found(client.get_children_watched(path).await)? {
                    Some((.., watch)) => return Ok(Some(watch)),
                    None if is_node => return Ok(None),
                    None => {}
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
