//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::plan::{Client, Distance, Store, Workload};
use crate::processes::Work;

/// Number and length of the rounds in which each client is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rounds: u32,
    pub(crate) round: Duration,
    /// Length of a first round that does not count, in which files, connections, caches and queues settle.
    pub(crate) warm_up: Duration,
}

/// For a first look: about three minutes for all workloads.
pub(crate) const QUICK: Pace = Pace {
    rounds: 5,
    round: Duration::from_millis(400),
    warm_up: Duration::from_millis(200),
};

/// For published figures: about a quarter of an hour for all workloads. If the machine's speed changes, many
/// alternating rounds can tell two clients apart; a few long ones cannot.
pub(crate) const FULL: Pace = Pace {
    rounds: 25,
    round: Duration::from_millis(500),
    warm_up: Duration::from_millis(200),
};

/// Measures the cost of a lock, next to other libraries and the bare statements of its store.
#[derive(Debug, Parser)]
#[command(name = "tenure-bench", bin_name = "cargo xtask bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Measures every workload, in about three minutes
    Quick(Measuring),
    /// Measures every workload with five times as many rounds, in about a quarter of an hour
    Full(Measuring),
    /// Compares two builds in alternating rounds: `cargo xtask bench --against COMMIT`
    Against(Against),
    /// Measures memory and processor time for many held locks
    Held(Holding),
    /// Measures the server time of a hand-over in a fair queue on Redis, with few waiters and with many
    Queue(Queueing),
    /// Runs one worker process, which begins a round at each line on stdin
    #[command(hide = true)]
    Work(Working),
}

#[derive(Args, Debug)]
pub(crate) struct Selection {
    /// Only these workloads
    #[arg(long = "workload", value_enum, value_delimiter = ',', value_name = "WORKLOAD")]
    pub(crate) workloads: Vec<Workload>,
    /// Only these stores
    #[arg(long = "store", value_enum, value_delimiter = ',', value_name = "STORE")]
    pub(crate) stores: Vec<Store>,
    /// Distance between clients and server; stores without a server run only with `near`
    #[arg(long, value_enum, default_value_t, value_name = "HOW_FAR")]
    pub(crate) distance: Distance,
    /// Folder for temporary lock files; a file store is as fast as its disk
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
    /// Number of rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// Length of a round
    #[arg(long, hide = true)]
    pub(crate) round_ms: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Measuring {
    #[command(flatten)]
    pub(crate) selection: Selection,
    /// Only these clients; without `bare`, no row is compared to it
    #[arg(long = "client", value_enum, value_delimiter = ',', value_name = "CLIENT")]
    pub(crate) clients: Vec<Client>,
    /// Write one line of JSON for each row of the table to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Hold every lock for N microseconds of busy work
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) section_us: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Against {
    /// The program file of the old build
    pub(crate) program: PathBuf,
    #[command(flatten)]
    pub(crate) selection: Selection,
}

#[derive(Args, Debug)]
pub(crate) struct Holding {
    /// The store of the locks
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    pub(crate) store: Store,
    /// Number of locks
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) locks: usize,
    /// Lease in milliseconds; each lock is renewed three times per lease
    #[arg(long, value_name = "N", default_value_t = 3_000)]
    pub(crate) lease_ms: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Queueing {
    /// Numbers of waiters; all are compared to the first
    #[arg(long, value_delimiter = ',', value_name = "N", default_values_t = [10, 10_000])]
    pub(crate) waiters: Vec<usize>,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Working {
    /// The work of the process, in JSON
    pub(crate) work: Work,
}

impl Selection {
    /// The pace `usual`, changed by the options.
    pub(crate) fn pace(&self, usual: Pace) -> Pace {
        let round = self.round_ms.map(Duration::from_millis);
        Pace {
            rounds: self.rounds.unwrap_or(usual.rounds),
            round: round.unwrap_or(usual.round),
            warm_up: round.unwrap_or(usual.warm_up),
        }
    }
}
