//! The clients of a store that hear of claims which may be gone.

use parking_lot::Mutex;
use tenure_backend::{ClientId, Invalidation, InvalidationQueue};

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
        let all = self.0.lock().clone();
        let told = all
            .iter()
            .filter(|(other, _)| client.is_none_or(|client| client == *other));
        for (_, queue) in told {
            queue.push(hint.clone());
        }
    }
}
