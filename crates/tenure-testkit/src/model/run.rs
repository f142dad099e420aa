//! Runs walks by their seeds, and tells the fewest steps that show what is wrong.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::step::{Step, plan};
use super::walk::walk;
use crate::Subject;
use crate::suite::{Trial, runtime};

/// How long one walk may take before it counts as stuck.
const WALK_LIMIT: Duration = Duration::from_secs(60);
/// For how long fewer steps are looked for that show the same.
const SHRINK_LIMIT: Duration = Duration::from_secs(20);

/// Walks once for each seed, each time on a fresh subject.
///
/// # Panics
/// If the store gives an answer that the contract does not allow: then the seed is printed, and the
/// fewest steps found that still lead to such an answer. Also if more than half of all steps could not be judged,
/// because the store could not be reached, or was so slow that leases ended while it answered.
///
/// # Examples
/// ```
/// use tenure_testkit::{Subject, model};
///
/// /// The walk of a seed that a failed test has printed.
/// fn once_more<S: Subject>(subject: impl AsyncFn() -> S, seed: u64) {
///     model::walks(subject, [seed]);
/// }
/// ```
pub fn walks<S: Subject>(subject: impl AsyncFn() -> S, seeds: impl IntoIterator<Item = u64>) {
    let runtime = runtime();
    let trial = runtime.block_on(async { Trial::new(subject().await).await });
    let (mut planned, mut judged) = (0, 0);
    for seed in seeds {
        let steps = plan(seed, &trial);
        planned += steps.len();
        match attempt(&runtime, &subject, &steps) {
            (Ok(number), _) => judged += number,
            (Err(why), told) => {
                let (told, why) = fewest(&runtime, &subject, steps, (told, why));
                panic!("{}", report(seed, &told, &why));
            }
        }
    }
    runtime.shutdown_background();
    assert!(
        judged * 2 >= planned,
        "only {judged} of {planned} steps could be judged"
    );
}

/// Walks once: how many steps could be judged, or what is wrong; and what it had to tell.
fn attempt<S: Subject>(
    runtime: &Runtime,
    subject: &impl AsyncFn() -> S,
    steps: &[Step],
) -> (Result<usize, String>, Vec<String>) {
    let mut told = Vec::new();
    let once = || {
        runtime.block_on(async {
            let trial = Trial::new(subject().await).await;
            let walk = walk(&trial, steps, &mut told);
            let stuck = |_| Err(format!("the walk takes longer than {WALK_LIMIT:?}"));
            tokio::time::timeout(WALK_LIMIT, walk).await.unwrap_or_else(stuck)
        })
    };
    // The panic's own words are printed where it happens.
    let came = catch_unwind(AssertUnwindSafe(once)).unwrap_or_else(|_| Err("a panic".to_owned()));
    (came, told)
}

/// Leaves out one step after the other, the last first, as long as the walk still goes wrong.
fn fewest<S: Subject>(
    runtime: &Runtime,
    subject: &impl AsyncFn() -> S,
    mut steps: Vec<Step>,
    mut found: (Vec<String>, String),
) -> (Vec<String>, String) {
    let began = Instant::now();
    let mut at = steps.len();
    while at > 0 && began.elapsed() < SHRINK_LIMIT {
        at -= 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        if let (Err(why), told) = attempt(runtime, subject, &fewer) {
            at = fewer.len();
            (steps, found) = (fewer, (told, why));
        }
    }
    found
}

fn report(seed: u64, told: &[String], why: &str) -> String {
    let mut text = format!("the walk of seed {seed} goes wrong, at the end of these steps:\n");
    for (number, line) in told.iter().enumerate() {
        // Writing to a string never fails.
        let _ = writeln!(text, "{:4}. {line}", number + 1);
    }
    text + why
}
