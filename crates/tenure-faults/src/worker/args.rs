//! A worker's orders: one argument, in JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Args {
    /// Where the store is.
    pub url: String,
    /// Where the run keeps its files.
    pub folder: PathBuf,
    /// Which process of the run it is.
    pub process: u64,
    /// How many tasks it has.
    pub tasks: u64,
    /// What decides its chances.
    pub seed: u64,
    /// A bug to be found.
    pub plant: Option<Plant>,
}

impl Args {
    /// Its log.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join(format!("worker-{}.log", self.process))
    }
}

/// A bug that is planted, so that it is known that a run finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Plant {
    /// Holders believe until they unlock, whatever the clock says.
    Believe,
    /// Every grant has the same token.
    Repeat,
    /// The fenced resource forgets which token was the greatest.
    Forget,
    /// A lock is never given back.
    Keep,
    /// Leases last a minute: the dead block the living.
    Linger,
    /// Waiters of fair locks do not queue.
    Barge,
    /// A lock is left in the store at the end.
    Litter,
}
