//! The project's tasks: `cargo xtask {setup,test,mutants,bench,interop-table,tidy,ci}`, one module each.

mod bench;
mod ci;
mod files;
mod lanes;
mod lean;
mod long;
mod memory_folder;
mod metadata;
mod mutants;
mod process;
mod publish;
mod regressions;
mod setup;
mod suite;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask VERB

  setup [--check]   install what the tests need (--check: only look)
  test [ARGS…]      every test of the workspace; with ARGS, `cargo test ARGS`
  test --long       that, more seeds, half an hour of faults on each store; `--accept FILE`: a script on each store
  mutants [NAME…]   plants the bugs of mutants/*/*.patch and fails if a test misses one
  bench ARGS…       what a lock costs: `quick`, `full`, `--against COMMIT`, `--help` (builds and runs tenure-bench)
  interop-table     runs the other lock clients next to Tenure, and writes the tables of docs/interop.md
  tidy              the rules that no compiler and no lint checks
  ci                everything that must hold before a merge";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((verb, rest)) = args.split_first() else {
        return usage();
    };
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let done = match (verb.as_str(), rest.as_slice()) {
        ("setup", []) => setup::run(true).map(drop),
        ("setup", ["--check"]) => setup::run(false).map(drop),
        ("test", ["--long", args @ ..]) => long::run(args),
        ("test", args) => suite::run(args),
        ("mutants", args) => mutants::run(args),
        ("bench", args) => bench::run(args),
        ("interop-table", []) => suite::interop_table(),
        ("tidy", []) => tidy::run(),
        ("ci", []) => ci::run(),
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask {verb}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
