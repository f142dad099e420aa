//! Tests of the suite and of random walks: both pass on the memory store, and each planted bug makes one of them fail.

mod bug;
mod connection;
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bug::{Bug, OF_STATE, OTHERS};
use store::BuggyStore;
use tenure_testkit::model::walks;
use tenure_testkit::suite::{Case, all, run};

/// Returns whether a case fails on a store with this bug. `None` is a store without a bug.
fn fails(case: Case, bug: Option<Bug>) -> bool {
    let attempt = || {
        run(
            async || BuggyStore::new(bug),
            async |fixture| (case.check)(fixture).await,
        )
    };
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}

/// Runs random walks on a store with the given bug. Returns the failure message, if a walk fails.
fn walk_failure(bug: Bug) -> Option<String> {
    let attempt = || walks(async || BuggyStore::new(Some(bug)), 1..=300);
    let panic = catch_unwind(AssertUnwindSafe(attempt)).err()?;
    panic.downcast_ref::<String>().cloned()
}

#[test]
fn every_case_passes_without_a_bug() {
    let failed: Vec<Case> = all().into_iter().filter(|case| fails(*case, None)).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn each_planted_bug_fails_its_case() {
    for (bug, name) in OF_STATE.iter().chain(OTHERS) {
        let case = all().into_iter().find(|case| case.name == *name);
        let case = case.unwrap_or_else(|| panic!("there is no case {name}"));
        assert!(fails(case, Some(*bug)), "{name} does not fail with {bug:?}");
    }
}

#[test]
fn random_walks_find_each_bug_of_claim_state() {
    let found = |(bug, _): &&(Bug, &str)| walk_failure(*bug).is_some();
    let failed: Vec<_> = OF_STATE.iter().chain(OTHERS).filter(found).copied().collect();
    assert_eq!(failed, OF_STATE);
}

#[test]
fn a_walk_failure_shows_the_seed_and_the_fewest_steps() {
    let message = walk_failure(Bug::ReaderIgnoresWriter).expect("a walk fails");
    println!("{message}");
    let steps: Vec<&str> = message.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(message.starts_with("the walk of seed "), "{message}");
    assert_eq!(steps.len(), 2, "{message}");
    assert!(steps.iter().all(|step| step.contains("Place {")), "{message}");
    assert!(
        message.ends_with("a claim of mode read conflicts with the holders [Write]"),
        "{message}"
    );
}
