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

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

/// How many seeds the test command runs.
const SEEDS: u64 = 10_000;
/// After so many seeds that broke a rule no more are looked for.
const ENOUGH: usize = 20;
/// How much of a world's log a failure shows; `TENURE_SEED` shows all.
const TAIL: usize = 150;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Runs so many seeds, on every processor; those that broke a rule, in order, each with what it broke.
fn sweep(seeds: u64) -> Vec<(u64, Vec<String>)> {
    let next = AtomicU64::new(0);
    let guilty = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while guilty.lock().len() < ENOUGH {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    let violations = fate::run(seed).violations;
                    if !violations.is_empty() {
                        guilty.lock().push((seed, violations));
                    }
                }
            });
        }
    });
    let mut guilty = guilty.into_inner();
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
fn one_world_is_shown_with_its_log() {
    let outcome = fate::run(number("TENURE_SEED").unwrap_or(1));
    println!("{}", outcome.log());
    assert_eq!(outcome.violations, Vec::<String>::new());
}

#[test]
fn the_same_seed_is_the_same_world_to_the_letter() {
    for seed in 0..50 {
        assert_eq!(fate::run(seed).log(), fate::run(seed).log(), "seed {seed}");
    }
}
