//! What a shop has: its till and its locks.
//! Not here: what it does with them (`buy`).

use std::sync::Arc;

use tenure::{Client, Error, Guarantee, Mutex, Striped};

use super::shelves::{SHELF, STRIPES};
use super::stock::Stock;
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
    pub(super) fn open(locks: &Client, stock: Stock) -> Result<Shop, Error> {
        locks.require(Guarantee::Fencing)?;
        Ok(Shop {
            till: Arc::new(Till::new(stock)),
            shelf: locks.mutex(SHELF),
            shelves: locks.striped(SHELF, STRIPES),
        })
    }

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
