//! A run that cannot fail is worth nothing: each planted bug is found, by the law that it breaks.

use std::time::Duration;

use tenure_faults::{Law, Menu, Plant, Run, Store};
use tenure_testkit::Rule;

const SHORT: Duration = Duration::from_secs(6);

/// How much longer a run may get: a machine that is busy with something else makes few steps in a short one.
const LONGEST: u32 = 8;

/// Runs with that bug, each on a file of its own, until one breaks all of these laws; each lasts twice as long as the last.
async fn find(plant: Plant, menu: Menu, laws: &[Law]) {
    let mut times = 1;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let run = Run::new(env!("CARGO_BIN_EXE_tenure-faults")).lasting(times * SHORT);
        let report = run.with(menu).planted(plant).on(Store::sqlite(folder.path()));
        let report = report.await.unwrap();
        if laws.iter().all(|law| report.breaks(*law)) {
            return report.forget();
        }
        assert!(
            times < LONGEST,
            "something of {laws:?} was never broken:\n{report}"
        );
        report.forget();
        times *= 2;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_believe_beyond_their_deadline_are_found() {
    let laws = [Law::History(Rule::V2), Law::History(Rule::V1)];
    find(Plant::Believe, Menu::STALLS, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_repeat_are_found() {
    find(Plant::Repeat, Menu::NOTHING, &[Law::History(Rule::V3)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_forgets_the_greatest_token_is_found() {
    find(Plant::Forget, Menu::STALLS, &[Law::History(Rule::V4)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_holders_that_block_the_living_are_found() {
    let menu = Menu {
        successions: true,
        ..Menu::NOTHING
    };
    find(Plant::Linger, menu, &[Law::L1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_are_never_given_back_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run::new(env!("CARGO_BIN_EXE_tenure-faults")).with(Menu::NOTHING);
    let run = run.planted(Plant::Keep).patient_for(SHORT);
    let report = run.on(Store::sqlite(folder.path())).await.unwrap();
    assert!(report.breaks(Law::L2), "{report}");
    report.forget();
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_push_in_are_found() {
    find(Plant::Barge, Menu::NOTHING, &[Law::History(Rule::L3)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_in_the_store_is_found() {
    find(Plant::Litter, Menu::NOTHING, &[Law::L4]).await;
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
