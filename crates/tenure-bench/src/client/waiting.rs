//! How a careful person waits for a key: the tasks of one process queue at a `tokio::sync::Mutex` of the key, so that one
//! of them asks the store, with a pause after each refusal that doubles, and that no two have alike.
//! Not here: what is asked (`statements`, `polling`).

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::Fallible;

/// The pause after a refusal: doubled each time up to the longest, and shortened by a random part of up to a half.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

/// What the store has granted, and the turn of its process, which ends with it.
pub(crate) struct Held<T> {
    _turn: OwnedMutexGuard<()>,
    pub(crate) granted: T,
}

/// Takes its turn in the line of its process, and asks until the store grants.
pub(crate) async fn wait<T, A: Future<Output = Fallible<Option<T>>>>(
    line: &Arc<Mutex<()>>,
    ask: impl Fn() -> A,
) -> Fallible<Held<T>> {
    let turn = line.clone().lock_owned().await;
    let mut pause = SHORTEST;
    loop {
        if let Some(granted) = ask().await? {
            return Ok(Held { _turn: turn, granted });
        }
        let part = (random() % 512) as f64 / 1024.0;
        tokio::time::sleep(pause.mul_f64(1.0 - part)).await;
        pause = (pause * 2).min(LONGEST);
    }
}

/// A number that differs from call to call and from process to process.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
