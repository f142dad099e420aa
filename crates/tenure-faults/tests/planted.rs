//! A run that cannot fail is worth nothing: each planted bug is found, by the law that it breaks.

use std::time::Duration;

use tenure_faults::{Law, Menu, Plant, Report, Run, Store};
use tenure_testkit::Rule;

const SHORT: Duration = Duration::from_secs(6);

/// A short run on a file of its own, with that bug.
async fn run(plant: Plant, menu: Menu) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let run = Run::new(env!("CARGO_BIN_EXE_tenure-faults")).lasting(SHORT);
    let run = run.with(menu).planted(plant);
    run.on(Store::sqlite(folder.path())).await.unwrap()
}

/// The run has found that, and its logs are removed; otherwise all it found is shown.
fn expect(report: Report, law: Law) {
    assert!(report.breaks(law), "nothing broke {law:?}:\n{report}");
    report.forget();
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_believe_beyond_their_deadline_are_found() {
    let report = run(Plant::Believe, Menu::STALLS).await;
    assert!(report.breaks(Law::History(Rule::V2)), "{report}");
    expect(report, Law::History(Rule::V1));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_repeat_are_found() {
    expect(run(Plant::Repeat, Menu::NOTHING).await, Law::History(Rule::V3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_forgets_the_greatest_token_is_found() {
    expect(run(Plant::Forget, Menu::STALLS).await, Law::History(Rule::V4));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_holders_that_block_the_living_are_found() {
    let menu = Menu {
        successions: true,
        ..Menu::NOTHING
    };
    expect(run(Plant::Linger, menu).await, Law::L1);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_are_never_given_back_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run::new(env!("CARGO_BIN_EXE_tenure-faults")).with(Menu::NOTHING);
    let run = run.planted(Plant::Keep).patient_for(SHORT);
    expect(run.on(Store::sqlite(folder.path())).await.unwrap(), Law::L2);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_push_in_are_found() {
    expect(run(Plant::Barge, Menu::NOTHING).await, Law::History(Rule::L3));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_in_the_store_is_found() {
    expect(run(Plant::Litter, Menu::NOTHING).await, Law::L4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_spoils_what_is_not_fenced_and_nothing_that_is() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run::new(env!("CARGO_BIN_EXE_tenure-faults")).lasting(2 * SHORT);
    let report = run
        .with(Menu::STALLS)
        .on(Store::sqlite(folder.path()))
        .await
        .unwrap();
    let report = report.expect_clean();
    assert!(report.lost_updates() > 0, "{report}");
    assert!(report.refused() > 0, "{report}");
}
