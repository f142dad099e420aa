//! What waiting claims wait for, found by their polls and followed by their watches; and who hears of lost claims.

use std::collections::HashMap;

use parking_lot::Mutex;
use tenure_backend::{ClaimId, ClientId, Invalidation, InvalidationQueue};
use tokio::sync::watch;

/// What a waiting claim waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Target {
    /// A change among the nodes of the lock.
    #[default]
    Lock,
    /// A change among the children of this node, which may be missing.
    Folder(String),
    /// The deletion of a contender's node.
    Node(String),
}

/// The targets of the claims that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<ClaimId, Watchers>>);

#[derive(Debug)]
struct Watchers {
    target: watch::Sender<Target>,
    /// Number of watches. A watch that has ended may be dropped only later, so the receivers do not tell.
    count: usize,
}

impl Watched {
    /// Sets what the claim waits for, if it is watched.
    pub(super) fn set(&self, id: ClaimId, found: Target) {
        if let Some(watched) = self.0.lock().get(&id) {
            watched.target.send_if_modified(|known| {
                let is_other = *known != found;
                *known = found;
                is_other
            });
        }
    }

    /// Returns what the claim waits for, from now on. `found` is what its last poll has found.
    pub(super) fn begin(&self, id: ClaimId, found: Target) -> watch::Receiver<Target> {
        let mut watched = self.0.lock();
        let watchers = watched.entry(id).or_insert_with(|| Watchers {
            target: watch::Sender::new(found),
            count: 0,
        });
        watchers.count += 1;
        watchers.target.subscribe()
    }

    /// Ends a watch.
    pub(super) fn end(&self, id: ClaimId) {
        let mut watched = self.0.lock();
        if let Some(watchers) = watched.get_mut(&id) {
            watchers.count -= 1;
            if watchers.count == 0 {
                watched.remove(&id);
            }
        }
    }
}

/// The clients that hear of claims which may be gone.
#[derive(Debug, Default)]
pub(super) struct Hints(Mutex<Vec<(ClientId, InvalidationQueue)>>);

impl Hints {
    pub(super) fn add(&self, client: ClientId, queue: InvalidationQueue) {
        self.0.lock().push((client, queue));
    }

    pub(super) fn remove(&self, queue: &InvalidationQueue) {
        self.0.lock().retain(|(_, other)| !other.is(queue));
    }

    /// Tells one client, or all of them.
    pub(super) fn push(&self, client: Option<ClientId>, hint: &Invalidation) {
        let is_told = |other| client.is_none_or(|client| client == other);
        let told: Vec<_> = self
            .0
            .lock()
            .iter()
            .filter(|(other, _)| is_told(*other))
            .cloned()
            .collect();
        for (_, queue) in told {
            queue.push(hint.clone());
        }
    }
}
