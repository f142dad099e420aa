//! The suite itself under test: it passes a correct model, and each bug that is planted there turns a case red.
//! The checker of histories is tested in `checker.rs` and `planted.rs`.

mod bug;
mod model;
mod table;
mod view;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bug::{BUGS, Bug};
use model::ModelUnderTest;
use tenure_testkit::Subject;
use tenure_testkit::suite::{Case, all, run};

async fn subject() -> impl Subject {
    ModelUnderTest::new(None)
}

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);

/// Whether a case is red on a model with that bug.
fn is_red(case: Case, bug: Bug) -> bool {
    let attempt = || {
        run(
            async || ModelUnderTest::new(Some(bug)),
            async |trial| (case.check)(trial).await,
        )
    };
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}

#[test]
fn each_planted_bug_turns_a_case_red() {
    let mut unseen = Vec::new();
    for bug in BUGS {
        let red: Vec<Case> = all().into_iter().filter(|case| is_red(*case, bug)).collect();
        println!("{bug:?}: {} red, such as {:?}", red.len(), red.first());
        if red.is_empty() {
            unseen.push(bug);
        }
    }
    assert_eq!(unseen, [], "no case is red");
}
