//! How a careful person polls: with a pause that doubles, and that no two have alike.
//! Not here: what is polled (`statements`, `polling`).

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The pause after a refusal: doubled each time up to the longest, and shortened by a random part of up to a half.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(16);

pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Self {
        Pauses(SHORTEST)
    }

    pub(crate) async fn pause(&mut self) {
        let part = (random() % 512) as f64 / 1024.0;
        tokio::time::sleep(self.0.mul_f64(1.0 - part)).await;
        self.0 = (self.0 * 2).min(LONGEST);
    }
}

/// A number that differs from call to call and from process to process.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}
