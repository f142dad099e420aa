//! A worker's orders, as its command line.

use std::path::PathBuf;

use crate::plant::Plant;

/// What a worker is told.
#[derive(Clone, Debug, clap::Parser)]
#[command(about = "A worker of a run with faults; the tests start it")]
pub struct Args {
    /// Where the store is.
    #[arg(long)]
    pub url: String,
    /// Where it writes its log.
    #[arg(long)]
    pub log: PathBuf,
    /// The socket of the fenced register.
    #[arg(long)]
    pub register: PathBuf,
    /// The folder of the counters that nothing fences.
    #[arg(long)]
    pub counters: PathBuf,
    /// Which process of the run it is.
    #[arg(long)]
    pub process: u64,
    /// How many tasks it has.
    #[arg(long)]
    pub tasks: u64,
    /// What decides its chances.
    #[arg(long)]
    pub seed: u64,
    /// A bug to be found.
    #[arg(long)]
    pub plant: Option<Plant>,
}
