//! Runs cases, each with its own runtime and store, and with a time limit.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_backend::Backend;
use tokio::runtime::{Builder, Runtime};

use super::Fixture;
use crate::{Chaos, FaultRates, Subject};

/// Time after which a case fails because it is stuck.
const CASE_LIMIT: Duration = Duration::from_secs(120);
/// Number of seeds with which each case runs under chaos, unless `TENURE_CHAOS_SEEDS` is set. The seeds are fixed, so that
/// failures repeat.
const SEEDS: u64 = 1;

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
    /// Group of the case.
    pub group: &'static str,
    /// Name of the case: the rule that it checks.
    pub name: &'static str,
    /// Body of the case. It panics if the store violates the rule.
    pub check: fn(Fixture) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.group, self.name)
    }
}

/// All cases, group by group.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    crate::__groups! { [] __list cases }
    cases
}

/// Runs a case on a fresh subject.
///
/// # Panics
/// Panics if the store violates the rule of the case, or the case takes longer than two minutes.
pub fn run<S: Subject>(subject: impl AsyncFnOnce() -> S, case: impl AsyncFnOnce(Fixture)) {
    let fixture = Box::pin(async { Fixture::new(subject().await).await });
    try_case(fixture, Box::new(|fixture| Box::pin(case(fixture))));
}

/// Runs a case with one seed, or with as many as the environment variable `TENURE_CHAOS_SEEDS` says, each on a fresh
/// subject whose clients go through [`Chaos`](crate::Chaos).
///
/// # Panics
/// Panics as [`run`] does, and prints the seed.
pub fn run_under_chaos<S: Subject>(subject: impl AsyncFn() -> S, case: impl AsyncFn(Fixture)) {
    let seeds = std::env::var("TENURE_CHAOS_SEEDS").map_or(SEEDS, |seeds| {
        seeds.parse().expect("TENURE_CHAOS_SEEDS is a number")
    });
    for seed in (1..=seeds).map(|n| n * 1_000) {
        let _seed = SeedOnPanic(seed);
        // Each client gets its own seed, and so other faults.
        let seeds = AtomicU64::new(seed);
        let chaos = move |client| -> Arc<dyn Backend> {
            let seed = seeds.fetch_add(1, Ordering::Relaxed);
            Arc::new(Chaos::new(client, seed, FaultRates::HIGH))
        };
        let fixture = Box::pin(async { Fixture::decorated(subject().await, Arc::new(chaos)).await });
        try_case(fixture, Box::new(|fixture| Box::pin(case(fixture))));
    }
}

/// A future whose type callers do not see. What takes it is compiled once, and not once for each case and store.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

fn try_case<'a>(fixture: Boxed<'a, Fixture>, case: Box<dyn FnOnce(Fixture) -> Boxed<'a, ()> + 'a>) {
    let runtime = runtime();
    runtime.block_on(async {
        let fixture = fixture.await;
        let finished = tokio::time::timeout(CASE_LIMIT, case(fixture)).await;
        finished.expect("the case is stuck: it takes longer than two minutes");
    });
    runtime.shutdown_background();
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be made")
}

/// Seed that is printed if the case panics.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed of the faults was {}", self.0);
        }
    }
}
