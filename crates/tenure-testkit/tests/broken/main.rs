//! The suite itself under test: it passes a correct model, and each bug that is planted there turns a case red.
//! The checker of histories is tested in `checker.rs` and `planted.rs`.

mod bug;
mod model;
mod table;
mod view;
mod walks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use bug::{BUGS, Bug};
use model::ModelUnderTest;
use parking_lot::Mutex;
use tenure_testkit::Subject;
use tenure_testkit::suite::{Case, all, run};

/// How many cases are tried at a time.
const AT_A_TIME: usize = 8;

async fn subject() -> impl Subject {
    ModelUnderTest::new(None)
}

tenure_testkit::conformance!(subject);
tenure_testkit::conformance_under_chaos!(subject);
tenure_testkit::agrees_with_the_model!(subject, walks: 1_000);

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

/// The cases that are red on a model with that bug. Several are tried at a time, for some wait to hear nothing.
fn red_cases(bug: Bug) -> Vec<Case> {
    let (cases, next, red) = (all(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let try_some = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if is_red(*case, bug) {
                red.lock().push(*case);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(try_some);
        }
    });
    red.into_inner()
}

#[test]
fn each_planted_bug_turns_a_case_red() {
    let mut unseen = Vec::new();
    for &bug in BUGS {
        let red = red_cases(bug);
        println!("{bug:?}: {} red, such as {:?}", red.len(), red.first());
        if red.is_empty() {
            unseen.push(bug);
        }
    }
    assert_eq!(unseen, [], "no case is red");
}
