//! Arguments of a worker, passed as one JSON string.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Arguments of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Args {
    /// URL of the store.
    pub url: String,
    /// Folder for the files of the run.
    pub folder: PathBuf,
    /// Number of the process, unique within the run.
    pub process: u64,
    /// Number of tasks.
    pub tasks: u64,
    /// Seed of the worker's random choices.
    pub seed: u64,
    /// Bug to plant in the worker, if any.
    pub plant: Option<PlantedBug>,
}

impl Args {
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join(format!("worker-{}.log", self.process))
    }
}

/// Bug that can be planted in the workers, to prove that a run finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlantedBug {
    /// Holders ignore their local deadline and losses until they unlock.
    IgnoreDeadline,
    /// Every grant is logged with the same token.
    RepeatToken,
    /// The register to which holders write, with their token, accepts older tokens too.
    AcceptOldTokens,
    /// No lock is released.
    NeverRelease,
    /// Leases last a minute, so that dead holders block waiters.
    LongLease,
    /// Waiters of fair locks do not queue, so they overtake others.
    SkipQueue,
    /// At its end, the worker leaves a lock in the store.
    LeaveLock,
}
