//! `tenure-bench` measures the cost of a lock next to the bare statements of its store. `cargo xtask bench` runs it.

mod against;
mod bench;
mod cli;
mod client;
mod contest;
mod cores;
mod held;
mod last_holder;
mod machine;
mod plan;
mod processes;
mod queue;
mod report;
mod row;
mod site;
mod stats;
mod stolen;
mod tally;
mod tasks;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Verb};

/// A result whose error ends the run, and is printed as text.
type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Quick(args) => bench::run(&args, cli::QUICK),
        Verb::Full(args) => bench::run(&args, cli::FULL),
        Verb::Against(args) => against::run(&args),
        Verb::Held(args) => held::run(&args),
        Verb::Queue(args) => queue::run(&args),
        Verb::Work(args) => tasks::work(&args.work),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tenure-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
