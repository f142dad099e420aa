//! `cargo xtask test --long`: all tests, then more seeds, long runs with faults, and an acceptance script on each
//! store.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::process::{Failure, cargo, root, run as run_command};
use crate::suite::{self, LONG};

/// Length of each run with faults, in seconds, unless `TENURE_FAULT_SECONDS` is set.
const FAULT_SECONDS: &str = "1800";

/// Simulations. Columns: test program, number of seeds unless `TENURE_SEEDS` is set.
const SIMULATIONS: [[&str; 2]; 2] = [["simulation", "200000"], ["quorum", "10000"]];

/// Packages whose stores also run the conformance suite under chaos, i.e. with random faults.
const CHAOS: &str =
    "-p tenure-etcd -p tenure-memory -p tenure-sql -p tenure-redis -p tenure-quorum -p tenure-zookeeper";

/// Number of seeds of each case under chaos, unless `TENURE_CHAOS_SEEDS` is set.
const CHAOS_SEEDS: &str = "50";

/// Runs with faults. Columns: test program, test, seed. Behind Sentinel the seed, modulo 3, is the number of replicas
/// that acknowledge each grant. An empty seed is a random one.
const FAULT_RUNS: [[&str; 3]; 14] = [
    ["sqlite", "sqlite_locks_hold_under_worker_faults", ""],
    ["redis", "redis_locks_hold_under_all_faults", ""],
    ["redis", "tokens_rise_across_restarts_that_lose_data", ""],
    ["topologies", "quorum_locks_hold_under_all_faults", ""],
    ["topologies", "sentinel_locks_hold_under_all_faults", "300"],
    ["topologies", "sentinel_locks_hold_under_all_faults", "301"],
    ["topologies", "sentinel_locks_hold_under_all_faults", "302"],
    ["topologies", "cluster_locks_hold_under_all_faults", ""],
    [
        "databases",
        "postgres_rows_with_versions_hold_under_all_faults",
        "",
    ],
    ["databases", "postgres_unique_rows_hold_under_all_faults", ""],
    [
        "databases",
        "mariadb_rows_with_versions_hold_under_all_faults",
        "",
    ],
    ["databases", "mariadb_unique_rows_hold_under_all_faults", ""],
    ["etcd", "etcd_locks_hold_under_all_faults", ""],
    ["zookeeper", "zookeeper_locks_hold_under_all_faults", ""],
];

/// Stores of the acceptance script. Columns: servers that the program `with_store` starts, end of the URL, what the
/// store's profile lacks.
const STORES: [[&str; 3]; 23] = [
    ["redis", "", ""],
    ["redis", "?layout=plain", "rwlock,semaphore,fair,list"],
    ["redis", "?layout=spring&registry=accept", "rwlock,semaphore,fair"],
    ["sentinel", "", ""],
    ["failover", "", ""],
    ["cluster", "", ""],
    ["quorum-3", "", "rwlock,semaphore,fair,list"],
    ["quorum-5", "", "rwlock,semaphore,fair,list"],
    ["quorum-3-dead", "", "rwlock,semaphore,fair,list"],
    ["postgres", "?layout=version", "rwlock,semaphore,fair"],
    ["postgres", "?layout=unique", "rwlock,semaphore,fair,fence"],
    ["postgres", "?layout=shedlock", "rwlock,semaphore,fair,fence"],
    ["pgbouncer", "?layout=version", "rwlock,semaphore,fair"],
    ["pgbouncer", "?layout=unique", "rwlock,semaphore,fair,fence"],
    ["mariadb", "?layout=version", "rwlock,semaphore,fair"],
    ["mariadb", "?layout=unique", "rwlock,semaphore,fair,fence"],
    ["mariadb", "?layout=shedlock", "rwlock,semaphore,fair,fence"],
    ["etcd", "", ""],
    ["etcd-3", "", ""],
    ["zookeeper", "?tick_time=500ms", ""],
    ["zookeeper", "?tick_time=500ms&layout=kazoo", "semaphore"],
    [
        "zookeeper",
        "?tick_time=500ms&layout=ephemeral",
        "rwlock,semaphore,fair",
    ],
    ["zookeeper-3", "?tick_time=500ms", ""],
];

/// Runs all parts, also after a failure, and prints a line for each. `args` may be `--accept FILE`: a script that is
/// called with `--tenure PROGRAM --url URL --without WORDS` for each store, and on SQLite with `--tenure PROGRAM`
/// alone.
pub(crate) fn run(args: &[&str]) -> Result<(), Failure> {
    let accept = match args {
        [] => None,
        // The script runs in the workspace, so a path relative to the caller's folder is made absolute.
        ["--accept", file] => Some(std::env::current_dir()?.join(file)),
        _ => return Err("`--long` is followed by nothing or `--accept FILE`".into()),
    };
    let mut parts = Parts::default();
    parts.run("all tests", || suite::run(&[]));
    parts.run("tests that are left out elsewhere", || suite::run(&[LONG]));
    for [program, seeds] in SIMULATIONS {
        let seeds = chosen("TENURE_SEEDS", seeds);
        parts.run(&format!("{program}, {seeds} seeds"), || {
            let mut command = cargo(&format!(
                "test --release -p tenure --all-features --test {program} no_seed"
            ));
            command.env("TENURE_SEEDS", &seeds);
            run_command(command)
        });
    }
    let seeds = chosen("TENURE_CHAOS_SEEDS", CHAOS_SEEDS);
    parts.run(&format!("chaos, {seeds} seeds"), || {
        let mut command = cargo(&format!("test {CHAOS} --all-features under_chaos"));
        command.env("TENURE_CHAOS_SEEDS", &seeds);
        run_command(command)
    });
    for [program, test, seed] in FAULT_RUNS {
        parts.run(&format!("{test} {seed}"), || fault_run(program, test, seed));
    }
    if let Some(script) = accept {
        parts.run("build of `tenure`", || {
            run_command(cargo("build --release -p tenure-cli --all-features"))
        });
        parts.run("acceptance on sqlite", || {
            let mut command = std::process::Command::new(&script);
            command.current_dir(root()).arg("--tenure").arg(PROGRAM);
            run_command(command)
        });
        for [topology, end, without] in STORES {
            parts.run(&format!("acceptance on {topology}{end}"), || {
                accept_on(&script, topology, end, without)
            });
        }
    }
    parts.end()
}

/// The value of an environment variable; `otherwise` if it is not set.
fn chosen(variable: &str, otherwise: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
}

/// The command, as `cargo build --release` leaves it in the workspace.
const PROGRAM: &str = "target/release/tenure";

fn fault_run(program: &str, test: &str, seed: &str) -> Result<(), Failure> {
    let mut command = cargo(&format!(
        "test -p tenure-faults --test {program} -- --exact {test} --nocapture"
    ));
    command.env(
        "TENURE_FAULT_SECONDS",
        chosen("TENURE_FAULT_SECONDS", FAULT_SECONDS),
    );
    if !seed.is_empty() {
        command.env("TENURE_SEED", seed);
    }
    run_command(command)
}

fn accept_on(script: &Path, topology: &str, end: &str, without: &str) -> Result<(), Failure> {
    let mut command = cargo("run --quiet -p tenure-servers --example with_store --");
    // A database has no table of locks yet.
    let create = "case $2 in postgres*|mysql*) \"$1\" --quiet --url \"$2\" schema --apply || exit;; esac\n\
                  exec \"$3\" --tenure \"$1\" --url \"$2\" --without \"$4\"";
    command.args([topology, "sh", "-c", create, "accept", PROGRAM]);
    command.arg(format!("{{url}}{end}")).arg(script).arg(without);
    run_command(command)
}

/// Parts of a long test, with their results.
#[derive(Default)]
struct Parts {
    lines: Vec<String>,
    failed: usize,
}

impl Parts {
    fn run(&mut self, name: &str, work: impl FnOnce() -> Result<(), Failure>) {
        println!("\nlong: {name} …");
        let began = Instant::now();
        let outcome = work();
        self.add(name, began.elapsed(), outcome);
    }

    fn add(&mut self, name: &str, time: Duration, outcome: Result<(), Failure>) {
        let result = match outcome {
            Ok(()) => "passed".to_owned(),
            Err(failure) => {
                self.failed += 1;
                format!("FAILED: {failure}")
            }
        };
        self.lines
            .push(format!("long: {name}, {} s: {result}", time.as_secs()));
    }

    /// Prints a line for each part. Fails if one failed.
    fn end(self) -> Result<(), Failure> {
        println!("\n{}", self.lines.join("\n"));
        match self.failed {
            0 => Ok(()),
            failed => Err(format!("{failed} of {} parts failed", self.lines.len()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_part_fails_the_whole() {
        let mut parts = Parts::default();
        parts.add("one", Duration::from_secs(3), Ok(()));
        parts.add("two", Duration::ZERO, Err("it broke".into()));
        assert_eq!(
            parts.lines,
            ["long: one, 3 s: passed", "long: two, 0 s: FAILED: it broke"]
        );
        assert_eq!(parts.end().unwrap_err().to_string(), "1 of 2 parts failed");
    }

    #[test]
    fn unknown_arguments_are_refused_before_anything_runs() {
        for args in [&["--accept"][..], &["-p", "tenure"]] {
            assert!(run(args).unwrap_err().to_string().contains("--accept FILE"));
        }
    }
}
