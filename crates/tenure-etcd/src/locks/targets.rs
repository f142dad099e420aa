//! What waiting claims wait for: found by their polls, and followed by their watches.

use std::collections::HashMap;

use parking_lot::Mutex;
use tenure_backend::ClaimId;
use tokio::sync::watch;

/// What a waiting claim waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Target {
    /// Any contender of the lock to leave, or to change its mode.
    #[default]
    Folder,
    /// The contender with this key.
    Key(Vec<u8>),
}

/// The targets of the claims that are watched, and the revisions at which they were found.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<ClaimId, watch::Sender<(Target, i64)>>>);

impl Watched {
    /// Sets what the claim waits for, if it is watched.
    pub(super) fn set(&self, id: ClaimId, target: Target, revision: i64) {
        if let Some(watched) = self.0.lock().get(&id) {
            watched.send_if_modified(|known| {
                let is_other = known.0 != target;
                *known = (target, revision);
                is_other
            });
        }
    }

    /// Returns what the claim waits for, from now on.
    pub(super) fn begin(&self, id: ClaimId) -> watch::Receiver<(Target, i64)> {
        let mut watched = self.0.lock();
        watched
            .entry(id)
            .or_insert_with(|| watch::Sender::new((Target::Folder, 0)))
            .subscribe()
    }

    /// Forgets a claim that no watch is left for.
    pub(super) fn end(&self, id: ClaimId) {
        let mut watched = self.0.lock();
        if watched
            .get(&id)
            .is_some_and(|sender| sender.receiver_count() == 0)
        {
            watched.remove(&id);
        }
    }
}
