//! What waiting claims wait for: found by their polls, and followed by their watches.

use std::collections::HashMap;

use parking_lot::Mutex;
use tenure_backend::ClaimId;
use tokio::sync::watch;

/// What the claims wait for that are watched.
///
/// A watch is notified of what each poll finds, also if it is equal to what an earlier one found.
///
/// # Examples
/// ```
/// use tenure_backend::{ClaimId, ClientId};
/// use tenure_contenders::Watched;
///
/// let (watched, id) = (Watched::default(), ClaimId::new(ClientId::from_random([7; 16]), 1));
/// let mut target = watched.begin(id, "node 4");
/// watched.set(id, "node 3");
/// assert!(target.has_changed().expect("it is watched"));
/// assert_eq!(*target.borrow_and_update(), "node 3");
/// watched.set(id, "node 3");
/// assert!(target.has_changed().expect("it is watched"));
/// ```
#[derive(Debug)]
pub struct Watched<T>(Mutex<HashMap<ClaimId, Watchers<T>>>);

#[derive(Debug)]
struct Watchers<T> {
    target: watch::Sender<T>,
    /// Number of watches. A watch that has ended may be dropped only later, so the receivers do not tell.
    count: usize,
}

impl<T> Watched<T> {
    /// Sets what the claim waits for, if it is watched.
    pub fn set(&self, id: ClaimId, target: T) {
        if let Some(watched) = self.0.lock().get(&id) {
            watched.target.send_replace(target);
        }
    }

    /// Returns what the claim waits for, from now on. `target` is what its last poll has found.
    pub fn begin(&self, id: ClaimId, target: T) -> watch::Receiver<T> {
        let mut watched = self.0.lock();
        let watchers = watched.entry(id).or_insert_with(|| Watchers {
            target: watch::Sender::new(target),
            count: 0,
        });
        watchers.count += 1;
        watchers.target.subscribe()
    }

    /// Ends a watch.
    pub fn end(&self, id: ClaimId) {
        let mut watched = self.0.lock();
        if let Some(watchers) = watched.get_mut(&id) {
            watchers.count -= 1;
            if watchers.count == 0 {
                watched.remove(&id);
            }
        }
    }
}

impl<T> Default for Watched<T> {
    fn default() -> Self {
        Watched(Mutex::default())
    }
}
