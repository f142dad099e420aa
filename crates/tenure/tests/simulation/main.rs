//! Seeded simulation: the real engine of several clients over the memory store, in bad weather, on paused time.
//! Single promises are tested in `tests/engine`; real processes and real stores are not simulated.
//!
//! Each seed draws a world: clients, keys, modes, locks that wait, try, nest, come in pairs or are dropped half-way,
//! and what befalls them: pauses, jumps of a client's clock, lost replies, late duplicates, lost and spurious wakes,
//! evictions, restarts of the store with and without its data, and death. Then the weather ends, and it is judged:
//! V1 to V4 by the checker of `tenure-testkit`, L3 by what the store answered, L1, L2 and L4 by who is stuck or left
//! behind when all is calm. `TENURE_SEED=n` shows one world, `TENURE_SEEDS=n` runs so many.

mod actor;
mod fate;
mod queues;
mod spy;
mod world;

/// How many seeds the test command runs, in as many tests as there are `part`s.
const SEEDS: u64 = 10_000;
const PARTS: u64 = 4;

/// Runs a seed, and panics with its log if a rule was broken.
fn try_seed(seed: u64) {
    let outcome = fate::run(seed);
    assert!(
        outcome.violations.is_empty(),
        "seed {seed} broke a rule:\n{}\n{}\nagain: TENURE_SEED={seed} cargo test -p tenure --test simulation one_seed -- --nocapture",
        outcome.violations.join("\n"),
        outcome.log,
    );
}

fn part(part: u64) {
    let wished = std::env::var("TENURE_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let seeds = wished.unwrap_or(SEEDS);
    (part..seeds).step_by(PARTS as usize).for_each(try_seed);
}

#[test]
fn no_seed_breaks_a_rule_1_of_4() {
    part(0);
}

#[test]
fn no_seed_breaks_a_rule_2_of_4() {
    part(1);
}

#[test]
fn no_seed_breaks_a_rule_3_of_4() {
    part(2);
}

#[test]
fn no_seed_breaks_a_rule_4_of_4() {
    part(3);
}

#[test]
fn one_seed_is_shown_with_its_log() {
    let seed = std::env::var("TENURE_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let outcome = fate::run(seed.unwrap_or(1));
    println!("{}", outcome.log);
    assert_eq!(outcome.violations, Vec::<String>::new());
}
