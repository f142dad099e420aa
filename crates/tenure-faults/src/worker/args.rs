//! A worker's orders: one argument, in JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::plant::Plant;

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Args {
    /// Where the store is.
    pub url: String,
    /// Where it writes its log.
    pub log: PathBuf,
    /// The socket of the fenced register.
    pub register: PathBuf,
    /// The folder of the counters that nothing fences.
    pub counters: PathBuf,
    /// Which process of the run it is.
    pub process: u64,
    /// How many tasks it has.
    pub tasks: u64,
    /// What decides its chances.
    pub seed: u64,
    /// A bug to be found.
    pub plant: Option<Plant>,
}
