//! The suite itself under test: a store in memory passes it, and each planted bug turns a case red.
//! The checker of histories is tested in `checker.rs` and `planted.rs`.

mod bug;
mod planted;
mod subject;
mod walks;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bug::{BUGS, Bug};
use subject::Buggy;
use tenure_testkit::suite::{Case, all, run};

/// Whether a case is red on a store with that bug, or with none.
fn is_red(case: Case, bug: Option<Bug>) -> bool {
    let attempt = || run(async || Buggy::new(bug), async |trial| (case.check)(trial).await);
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}

#[test]
fn no_case_is_red_without_a_bug() {
    let red: Vec<Case> = all().into_iter().filter(|case| is_red(*case, None)).collect();
    assert!(red.is_empty(), "{red:?}");
}

#[test]
fn each_planted_bug_turns_a_case_red() {
    let mut unseen = Vec::new();
    for &bug in BUGS {
        let red = all().into_iter().find(|case| is_red(*case, Some(bug)));
        println!("{bug:?}: {red:?} is red");
        if red.is_none() {
            unseen.push(bug);
        }
    }
    assert_eq!(unseen, [], "no case is red");
}
