//! Seeded simulation: several clients with the real engine over the memory store, with random faults, on paused time.
//!
//! Each seed decides the clients, what their tasks acquire, and the faults. Then the faults end, and the rules are checked.
//! `README.md` has the faults, the rules, and the number of seeds after which each planted bug is found.
//!
//! `TENURE_SEED=n` shows one simulation, and `TENURE_SEEDS=n` sets the number of seeds. The same seed gives the same log.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod actor;
mod claims;
mod connection;
mod liveness;
mod log;
mod queues;
mod seed_run;
mod simulation;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// Number of seeds of a test run without `TENURE_SEEDS`.
const SEEDS: u64 = 4_000;
/// Number of failing seeds after which the search stops.
const ENOUGH: usize = 20;
/// If no simulation ends within this real time, those that run are stuck. Most take milliseconds.
const REST: Duration = Duration::from_secs(60);
/// Number of log lines that a failure shows. `TENURE_SEED` shows all.
const TAIL: usize = 150;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Shared by the threads: the next seed, the running seeds, and whether to stop.
#[derive(Debug, Default)]
struct Sweep {
    next: AtomicU64,
    running: Mutex<BTreeSet<u64>>,
    over: AtomicBool,
}

impl Sweep {
    fn take_part(&self, seeds: u64, sender: &Sender<(u64, Vec<String>)>) {
        while !self.over.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            self.running.lock().insert(seed);
            let violations = seed_run::run(seed).violations;
            self.running.lock().remove(&seed);
            // The receiver is gone once enough failing seeds were found.
            let _ = sender.send((seed, violations));
        }
    }
}

/// Simulates the seeds below `seeds` on all processors. Returns failing seeds with their violations, sorted by seed.
fn sweep(seeds: u64) -> Vec<(u64, Vec<String>)> {
    let sweep = Arc::new(Sweep::default());
    let (sender, receiver) = mpsc::channel();
    for _ in 0..thread::available_parallelism().map_or(1, |n| n.get()) {
        let (sweep, sender) = (sweep.clone(), sender.clone());
        thread::spawn(move || sweep.take_part(seeds, &sender));
    }
    drop(sender);
    let mut guilty = Vec::new();
    while guilty.len() < ENOUGH {
        match receiver.recv_timeout(REST) {
            Ok((seed, violations)) if !violations.is_empty() => guilty.push((seed, violations)),
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let left = sweep.running.lock();
                assert!(
                    left.is_empty(),
                    "the simulations of these seeds panicked: {left:?}"
                );
                break;
            }
            // A simulation is stuck if its tasks wake each other forever, so that paused time does not advance. Its thread ends
            // with the process.
            Err(RecvTimeoutError::Timeout) => {
                panic!(
                    "the simulations of these seeds never end: {:?}",
                    sweep.running.lock()
                )
            }
        }
    }
    sweep.over.store(true, Ordering::Relaxed);
    guilty.sort();
    guilty
}

#[test]
fn no_seed_breaks_a_rule() {
    let guilty = sweep(number("TENURE_SEEDS").unwrap_or(SEEDS));
    let Some((first, _)) = guilty.first() else { return };
    let rules: Vec<String> = guilty
        .iter()
        .map(|(seed, broken)| format!("seed {seed}: {}", broken.join("\n    ")))
        .collect();
    let log = seed_run::run(*first).log();
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(TAIL)..];
    panic!(
        "{}\n\nthe log of seed {first} ends with:\n{}\n\nagain: TENURE_SEED={first} cargo test -p tenure --test simulation one_seed -- --nocapture",
        rules.join("\n"),
        tail.join("\n"),
    );
}

#[test]
fn one_seed_is_shown_with_its_log() {
    let outcome = seed_run::run(number("TENURE_SEED").unwrap_or(1));
    println!("{}", outcome.log());
    assert_eq!(outcome.violations, Vec::<String>::new());
}

#[test]
fn the_same_seed_gives_the_same_log() {
    for seed in 0..50 {
        assert_eq!(
            seed_run::run(seed).log(),
            seed_run::run(seed).log(),
            "seed {seed}"
        );
    }
}
