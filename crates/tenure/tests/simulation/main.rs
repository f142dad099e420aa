//! Seeded simulation: the real engine of several clients over the memory store, in bad weather, on paused time.
//! Single promises are tested in `tests/engine`; real processes and real stores are not simulated.
//!
//! Each seed draws a world: clients, keys, modes, locks that wait, try, nest, come in pairs or are dropped half-way,
//! and what befalls them: pauses, jumps of a client's clock, lost replies, late duplicates, lost and spurious wakes,
//! evictions, restarts of the store with and without its data, and death. Then the weather ends, and it is judged; the
//! rules, and which planted bug is found after how many seeds, are in `README.md`.
//!
//! `TENURE_SEED=n` shows one world, `TENURE_SEEDS=n` runs so many. The same seed is the same world, to the letter.

mod actor;
mod calm;
mod claims;
mod fate;
mod log;
mod queues;
mod spy;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

/// How many seeds the test command runs.
const SEEDS: u64 = 10_000;
/// After so many seeds that broke a rule no more are looked for.
const ENOUGH: usize = 20;
/// How long a world may take, though it takes milliseconds.
const REST: Duration = Duration::from_secs(60);
/// How much of a world's log a failure shows; `TENURE_SEED` shows all.
const TAIL: usize = 150;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// What is known of a sweep while it runs.
#[derive(Debug, Default)]
struct Sweep {
    next: AtomicU64,
    running: Mutex<BTreeSet<u64>>,
    over: AtomicBool,
}

impl Sweep {
    fn take_part(&self, seeds: u64, tell: &Sender<(u64, Vec<String>)>) {
        while !self.over.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            self.running.lock().insert(seed);
            let violations = fate::run(seed).violations;
            self.running.lock().remove(&seed);
            // Nobody listens any more once enough is known.
            let _ = tell.send((seed, violations));
        }
    }
}

/// Runs so many seeds, on every processor; those that broke a rule, in order, each with what it broke.
fn sweep(seeds: u64) -> Vec<(u64, Vec<String>)> {
    let sweep = Arc::new(Sweep::default());
    let (tell, told) = mpsc::channel();
    for _ in 0..thread::available_parallelism().map_or(1, |n| n.get()) {
        let (sweep, tell) = (sweep.clone(), tell.clone());
        thread::spawn(move || sweep.take_part(seeds, &tell));
    }
    drop(tell);
    let mut guilty = Vec::new();
    while guilty.len() < ENOUGH {
        match told.recv_timeout(REST) {
            Ok((seed, violations)) if !violations.is_empty() => guilty.push((seed, violations)),
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let left = sweep.running.lock();
                assert!(left.is_empty(), "the worlds of these seeds panicked: {left:?}");
                break;
            }
            // Its tasks wake each other for ever, and virtual time stands still. Its thread ends with the process.
            Err(RecvTimeoutError::Timeout) => {
                panic!(
                    "the worlds of these seeds never come to rest: {:?}",
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
    let log = fate::run(*first).log();
    let lines: Vec<&str> = log.lines().collect();
    let tail = &lines[lines.len().saturating_sub(TAIL)..];
    panic!(
        "{}\n\nthe log of seed {first} ends so:\n{}\n\nagain: TENURE_SEED={first} cargo test -p tenure --test simulation one_world -- --nocapture",
        rules.join("\n"),
        tail.join("\n"),
    );
}

#[test]
fn one_seed_is_shown_with_its_log() {
    let outcome = fate::run(number("TENURE_SEED").unwrap_or(1));
    println!("{}", outcome.log());
    assert_eq!(outcome.violations, Vec::<String>::new());
}

#[test]
fn the_same_seed_gives_the_same_log() {
    for seed in 0..50 {
        assert_eq!(fate::run(seed).log(), fate::run(seed).log(), "seed {seed}");
    }
}
