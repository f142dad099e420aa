//! A run that cannot fail is worth nothing: each planted bug is found, by the law that it breaks.

use std::time::Duration;

use tenure_faults::{Law, Menu, Plant, Run, Store};
use tenure_testkit::Rule;

const SHORT: Duration = Duration::from_secs(6);

/// How long a run may get: a machine that is busy with something else makes few steps in a short one.
const LONGEST: Duration = Duration::from_secs(48);

fn every_fault() -> Run {
    Run::new(env!("CARGO_BIN_EXE_tenure-faults"))
}

/// Makes runs with that bug, each on a file of its own, until one breaks all of these laws; each lasts twice as long as the
/// last.
async fn find(plant: Plant, menu: Menu, laws: &[Law]) {
    let mut run = Run {
        span: SHORT,
        menu,
        plant: Some(plant),
        ..every_fault()
    };
    if plant == Plant::Keep {
        run.patience = SHORT;
    }
    loop {
        let folder = tempfile::tempdir().unwrap();
        let report = run.clone().on(Store::sqlite(folder.path())).await.unwrap();
        if laws.iter().all(|law| report.breaks(*law)) {
            return report.forget();
        }
        assert!(
            run.span < LONGEST,
            "something of {laws:?} was never broken:\n{report}"
        );
        report.forget();
        run.span *= 2;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_ignore_their_deadline_are_found() {
    let laws = [Law::History(Rule::V2), Law::History(Rule::V1)];
    find(Plant::Believe, Menu::STALLS, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_tokens_are_found() {
    find(Plant::Repeat, Menu::NOTHING, &[Law::History(Rule::V3)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_forgets_the_greatest_token_is_found() {
    find(Plant::Forget, Menu::STALLS, &[Law::History(Rule::V4)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_holders_that_block_waiters_are_found() {
    let menu = Menu {
        successions: true,
        ..Menu::NOTHING
    };
    find(Plant::Linger, menu, &[Law::L1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_are_never_released_are_found() {
    find(Plant::Keep, Menu::NOTHING, &[Law::L2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_overtake_are_found() {
    find(Plant::Barge, Menu::NOTHING, &[Law::History(Rule::L3)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_left_in_the_store_is_found() {
    find(Plant::Litter, Menu::NOTHING, &[Law::L4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_corrupts_only_the_unfenced_resource() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run {
        span: 2 * SHORT,
        menu: Menu::STALLS,
        ..every_fault()
    };
    let report = run.on(Store::sqlite(folder.path())).await.unwrap().expect_clean();
    assert!(report.lost_updates > 0, "{report}");
    assert!(report.verdict.refused > 0, "{report}");
}
