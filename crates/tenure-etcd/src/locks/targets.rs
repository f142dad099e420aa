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

/// A target, and the revision at which a poll has found it.
pub(super) type Found = (Target, i64);

/// The targets of the claims that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<ClaimId, Watchers>>);

#[derive(Debug)]
struct Watchers {
    target: watch::Sender<Found>,
    /// Number of watches. A watch that has ended may be dropped only later, so the receivers do not tell.
    count: usize,
}

impl Watched {
    /// Sets what the claim waits for, if it is watched.
    pub(super) fn set(&self, id: ClaimId, found: Found) {
        if let Some(watched) = self.0.lock().get(&id) {
            watched.target.send_if_modified(|known| {
                let is_other = known.0 != found.0;
                *known = found;
                is_other
            });
        }
    }

    /// Returns what the claim waits for, from now on. `found` is what its last poll has found.
    pub(super) fn begin(&self, id: ClaimId, found: Found) -> watch::Receiver<Found> {
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
