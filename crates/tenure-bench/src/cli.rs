//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::plan::{Client, Distance, Store, Workload};
use crate::processes::Work;

/// How long and how often each client is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rounds: u32,
    pub(crate) round: Duration,
    /// Not counted: files, connections, caches and queues settle.
    pub(crate) warm_up: Duration,
}

/// About two minutes for everything.
pub(crate) const QUICK: Pace = Pace {
    rounds: 5,
    round: Duration::from_millis(400),
    warm_up: Duration::from_millis(200),
};

/// For figures that are published: about a quarter of an hour for everything. Many rounds that alternate tell two clients
/// apart on a machine whose speed changes; a few long ones do not.
pub(crate) const FULL: Pace = Pace {
    rounds: 25,
    round: Duration::from_millis(500),
    warm_up: Duration::from_millis(200),
};

/// Measures what a lock costs, beside the bare statements of its store and beside other libraries.
#[derive(Debug, Parser)]
#[command(name = "tenure-bench", bin_name = "cargo xtask bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Every workload, in about two minutes
    Quick(Measuring),
    /// The same with five times as many rounds, in about a quarter of an hour
    Full(Measuring),
    /// The same workloads by two builds, in alternating rounds: `cargo xtask bench --against COMMIT`
    Against(Against),
    /// What it takes to keep many locks alive
    Held(Holding),
    /// One of several processes: told by its stdin when to begin
    #[command(hide = true)]
    Work(Working),
}

/// Which workloads are run, and how.
#[derive(Args, Debug)]
pub(crate) struct Selection {
    /// Only these workloads
    #[arg(long = "workload", value_enum, value_delimiter = ',', value_name = "WORKLOAD")]
    pub(crate) workloads: Vec<Workload>,
    /// Only these stores
    #[arg(long = "store", value_enum, value_delimiter = ',', value_name = "STORE")]
    pub(crate) stores: Vec<Store>,
    /// How far a store's server is from those who call it; the others are left out unless it is near
    #[arg(long, value_enum, default_value_t, value_name = "HOW_FAR")]
    pub(crate) distance: Distance,
    /// Where temporary lock files are made: a file store is as fast as the disk beneath it
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
    /// Number of rounds instead of the default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// How long a round lasts
    #[arg(long, hide = true)]
    pub(crate) round_ms: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Measuring {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Only these clients; without `bare` there is nothing to compare to
    #[arg(long = "client", value_enum, value_delimiter = ',', value_name = "CLIENT")]
    pub(crate) clients: Vec<Client>,
    /// Write one JSON object a line to this file, one line for each row of the table
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Keep every lock for so many microseconds of busy work
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) section_us: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Against {
    /// The other build of this program: the old one
    pub(crate) program: PathBuf,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

#[derive(Args, Debug)]
pub(crate) struct Holding {
    /// Where they are: memory or redis
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    pub(crate) store: Store,
    /// How many locks
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) locks: usize,
    /// Their lease in milliseconds: each is renewed three times in it
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    pub(crate) lease_ms: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Working {
    /// In JSON
    pub(crate) work: Work,
}

impl Selection {
    /// The pace of the verb, with what the options change.
    pub(crate) fn pace(&self, usual: Pace) -> Pace {
        let round = self.round_ms.map(Duration::from_millis);
        Pace {
            rounds: self.rounds.unwrap_or(usual.rounds),
            round: round.unwrap_or(usual.round),
            warm_up: round.unwrap_or(usual.warm_up),
        }
    }
}
