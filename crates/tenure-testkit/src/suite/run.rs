//! Runs cases: each on a runtime and a store of its own, within a time limit.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::Backend;
use tokio::runtime::{Builder, Runtime};

use super::Trial;
use crate::{Chaos, Subject, Weather};

/// How long a case may take before it counts as stuck.
const CASE_LIMIT: Duration = Duration::from_secs(120);
/// In how many weathers each case is run under chaos. Fixed, so that a failure is seen again.
const SEEDS: u64 = 5;

/// One case of the suite.
///
/// # Examples
/// ```
/// use tenure_testkit::suite::all;
///
/// let mut mutual = all().into_iter().filter(|case| case.group == "mutual");
/// assert!(mutual.any(|case| case.name == "two_exclusive_claims_are_never_granted_together"));
/// ```
#[derive(Clone, Copy)]
pub struct Case {
    /// Its group.
    pub group: &'static str,
    /// Its sentence.
    pub name: &'static str,
    /// The case itself: it panics if the store breaks the sentence.
    pub check: fn(Trial) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.group, self.name)
    }
}

/// Every case, group by group.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    crate::__groups! { [] __list cases }
    cases
}

/// Runs one case on a fresh subject.
///
/// # Panics
/// If the store breaks the case's sentence, or takes longer than two minutes.
pub fn run<S: Subject>(subject: impl AsyncFnOnce() -> S, case: impl AsyncFnOnce(Trial)) {
    try_case(async || Trial::new(subject().await).await, case);
}

/// Runs one case in several weathers, each on a fresh subject whose clients live in [`Chaos`](crate::Chaos).
///
/// # Panics
/// As [`run`]; the weather's seed is printed.
pub fn run_under_chaos<S: Subject>(subject: impl AsyncFn() -> S, case: impl AsyncFn(Trial)) {
    for seed in (1..=SEEDS).map(|n| n * 1_000) {
        let _seed = SeedOnPanic(seed);
        // Each client has a seed of its own.
        let seeds = AtomicU64::new(seed);
        let chaos = move |client| -> Arc<dyn Backend> {
            let seed = seeds.fetch_add(1, Ordering::Relaxed);
            Arc::new(Chaos::new(client, seed, Weather::ROUGH))
        };
        let trial = async || Trial::decorated(subject().await, Arc::new(chaos)).await;
        try_case(trial, async |trial| case(trial).await);
    }
}

fn try_case(trial: impl AsyncFnOnce() -> Trial, case: impl AsyncFnOnce(Trial)) {
    let runtime = runtime();
    runtime.block_on(async {
        let trial = trial().await;
        let finished = tokio::time::timeout(CASE_LIMIT, case(trial)).await;
        finished.expect("the case is stuck: it takes longer than two minutes");
    });
    runtime.shutdown_background();
}

/// What a case or a walk runs on.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

/// Names the seed if the case fails.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the weather's seed was {}", self.0);
        }
    }
}
