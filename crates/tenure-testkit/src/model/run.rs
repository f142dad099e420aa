//! Runs random walks (sequences of requests to a store), each from its seed. Removes steps from a failing walk as
//! long as it still fails.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::plan::{Step, plan};
use super::walk::walk;
use crate::Subject;
use crate::suite::{Fixture, runtime};

/// Time after which a walk fails because it is stuck.
const WALK_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for shortening a failing walk.
const SHRINK_LIMIT: Duration = Duration::from_secs(20);

/// Runs one random walk (a sequence of requests to a store) per seed, each on a fresh subject.
///
/// # Panics
/// Panics if the store gives a reply that the contract does not allow; the message has the seed, and the fewest steps
/// found that lead to such a reply. Panics also if a walk takes longer than a minute, or if more than half of all
/// steps could not be checked: the store could not be reached, or was so slow that leases expired during calls.
///
/// # Examples
/// ```
/// use tenure_testkit::{Subject, model};
///
/// /// Repeats the walk of a seed that a failed test has printed.
/// fn repeat<S: Subject>(subject: impl AsyncFn() -> S, seed: u64) {
///     model::walks(subject, [seed]);
/// }
/// ```
pub fn walks<S: Subject>(subject: impl AsyncFn() -> S, seeds: impl IntoIterator<Item = u64>) {
    let runtime = runtime();
    let fixture = runtime.block_on(async { Fixture::new(subject().await).await });
    let (mut planned, mut checked) = (0, 0);
    for seed in seeds {
        let steps = plan(seed, &fixture);
        planned += steps.len();
        match attempt(&runtime, &subject, &steps) {
            (Ok(number), _) => checked += number,
            (Err(why), transcript) => {
                let (transcript, why) = shrink(&runtime, &subject, steps, (transcript, why));
                panic!("{}", report(seed, &transcript, &why));
            }
        }
    }
    runtime.shutdown_background();
    assert!(
        checked * 2 >= planned,
        "only {checked} of {planned} steps could be checked"
    );
}

/// Runs one walk. Returns the number of checked steps, or what failed, and the transcript of the steps.
fn attempt<S: Subject>(
    runtime: &Runtime,
    subject: &impl AsyncFn() -> S,
    steps: &[Step],
) -> (Result<usize, String>, Vec<String>) {
    let mut transcript = Vec::new();
    let once = || {
        runtime.block_on(async {
            let fixture = Fixture::new(subject().await).await;
            let walk = walk(&fixture, steps, &mut transcript);
            let stuck = |_| Err(format!("the walk takes longer than {WALK_LIMIT:?}"));
            tokio::time::timeout(WALK_LIMIT, walk).await.unwrap_or_else(stuck)
        })
    };
    // The panic hook has already printed the panic's message.
    let outcome = catch_unwind(AssertUnwindSafe(once)).unwrap_or_else(|_| Err("a panic".to_owned()));
    (outcome, transcript)
}

/// Removes steps from a failing walk, one by one and last first, as long as it still fails.
fn shrink<S: Subject>(
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
        if let (Err(why), transcript) = attempt(runtime, subject, &fewer) {
            at = fewer.len();
            (steps, found) = (fewer, (transcript, why));
        }
    }
    found
}

fn report(seed: u64, transcript: &[String], why: &str) -> String {
    let mut text = format!("the walk of seed {seed} fails after these steps:\n");
    for (number, line) in transcript.iter().enumerate() {
        // Writing to a `String` never fails.
        let _ = writeln!(text, "{:4}. {line}", number + 1);
    }
    text + why
}
