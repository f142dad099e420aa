//! The suite and the random walks under test: a store in memory passes them, and each planted bug turns them red.
//! The checker of histories is tested in `checker.rs` and `planted.rs`.

mod bug;
mod planted;
mod subject;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bug::{Bug, OF_STATE, OTHERS};
use subject::Buggy;
use tenure_testkit::model::walks;
use tenure_testkit::suite::{Case, all, run};

/// Whether a case is red on a store with that bug, or with none.
fn is_red(case: Case, bug: Option<Bug>) -> bool {
    let attempt = || run(async || Buggy::new(bug), async |trial| (case.check)(trial).await);
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}

/// What random walks say about a store with that bug.
fn words_of_walks(bug: Bug) -> Option<String> {
    let attempt = || walks(async || Buggy::new(Some(bug)), 1..=300);
    let panic = catch_unwind(AssertUnwindSafe(attempt)).err()?;
    panic.downcast_ref::<String>().cloned()
}

#[test]
fn every_case_passes_without_a_bug() {
    let red: Vec<Case> = all().into_iter().filter(|case| is_red(*case, None)).collect();
    assert!(red.is_empty(), "{red:?}");
}

#[test]
fn each_planted_bug_fails_its_case() {
    for (bug, name) in OF_STATE.iter().chain(OTHERS) {
        let case = all().into_iter().find(|case| case.name == *name);
        let case = case.unwrap_or_else(|| panic!("there is no case {name}"));
        assert!(is_red(case, Some(*bug)), "{bug:?} does not turn {name} red");
    }
}

#[test]
fn random_walks_find_each_bug_of_claim_state() {
    let seen = |(bug, _): &&(Bug, &str)| words_of_walks(*bug).is_some();
    let red: Vec<_> = OF_STATE.iter().chain(OTHERS).filter(seen).copied().collect();
    assert_eq!(red, OF_STATE);
}

#[test]
fn a_walk_failure_shows_the_seed_and_the_fewest_steps() {
    let words = words_of_walks(Bug::ReaderIgnoresWriter).expect("a walk is red");
    println!("{words}");
    let steps: Vec<&str> = words.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(words.starts_with("the walk of seed "), "{words}");
    assert_eq!(steps.len(), 2, "{words}");
    assert!(steps.iter().all(|step| step.contains("Place {")), "{words}");
    assert!(
        words.ends_with("a claim of mode read is not admitted beside [Write]"),
        "{words}"
    );
}
