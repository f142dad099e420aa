//! What a shop has: its till and its locks.

use std::sync::Arc;

use tenure::{Mutex, Striped};

use super::till::Till;

/// What a shop has; clones share it.
#[derive(Clone)]
pub(super) struct Shop {
    pub(super) till: Arc<Till>,
    /// The lock of the one shelf.
    pub(super) shelf: Mutex,
    /// The locks of ten.
    pub(super) shelves: Striped,
}

impl Shop {
    /// SQLite blocks, so it works on a thread that may.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Till) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let till = self.till.clone();
        tokio::task::spawn_blocking(move || work(&till))
            .await
            .expect("nobody panics at a till")
    }
}
