//! The random walks under test: each planted bug of a claim's state turns a walk red.
//! `tenure-memory` passes them in its own tests.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tenure_testkit::model::walks;

use crate::bug::{BUGS, Bug};
use crate::subject::Buggy;

/// What is not a claim's state: clocks that move within a call, wake-ups, names and listings, batches,
/// closing and ailments.
/// The cases of the suite see these.
const NOT_FOR_WALKS: [Bug; 14] = [
    Bug::BeliefStartsAtTheReply,
    Bug::PlaceByIsReadAtSending,
    Bug::WakesNobody,
    Bug::CountsOwnWaiters,
    Bug::KeysFoldCase,
    Bug::PrefixesFoldCase,
    Bug::PagesRepeat,
    Bug::FullPagesAnnounceAnother,
    Bug::ClosingDoesNotClose,
    Bug::BatchEndsAtTheFirstFailure,
    Bug::LongBatchesAreShuffled,
    Bug::FailureCloudsItsBatch,
    Bug::AilmentLooksLikeWeather,
    Bug::AilmentLooksLikeLoss,
];

#[test]
fn each_planted_bug_of_a_claims_state_turns_a_walk_red() {
    let unseen: Vec<Bug> = BUGS
        .iter()
        .copied()
        .filter(|bug| words(*bug, 300).is_none())
        .collect();
    assert_eq!(unseen, NOT_FOR_WALKS);
}

#[test]
fn a_failure_names_the_seed_and_the_fewest_steps() {
    let words = words(Bug::ReaderIgnoresWriter, 300).expect("a walk is red");
    println!("{words}");
    let steps: Vec<&str> = words.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(words.starts_with("the walk of seed "), "{words}");
    assert_eq!(steps.len(), 2, "{words}");
    assert!(steps.iter().all(|step| step.contains("places claim")), "{words}");
    assert!(
        words.ends_with("a claim of mode read is not admitted beside [Write]"),
        "{words}"
    );
}

/// What the walks say about a store with that bug.
fn words(bug: Bug, seeds: u64) -> Option<String> {
    let attempt = || walks(async || Buggy::new(Some(bug)), 1..=seeds);
    let panic = catch_unwind(AssertUnwindSafe(attempt)).err()?;
    panic.downcast_ref::<String>().cloned()
}
