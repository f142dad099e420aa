//! A worker's orders: one argument, in JSON.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::plant::Plant;

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

/// The socket of the fenced register.
pub(crate) fn register(folder: &Path) -> PathBuf {
    folder.join("register")
}

/// The folder of the counters that nothing fences.
pub(crate) fn counters(folder: &Path) -> PathBuf {
    folder.join("counters")
}
