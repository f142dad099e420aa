//! Tests that runs find bugs: a run with a planted bug reports the laws that the bug violates.

use std::time::Duration;

use tenure_faults::{FaultSet, Law, PlantedBug, Run, Store};
use tenure_testkit::Rule;

const SHORT: Duration = Duration::from_secs(6);

/// Length of the last run, which must find the bug. On a busy machine, shorter runs may make too few steps.
const LONGEST: Duration = Duration::from_secs(48);

fn every_fault() -> Run {
    Run::new(env!("CARGO_BIN_EXE_tenure-faults"))
}

/// Repeats runs with a planted bug, each on a new file and twice as long as the one before, until one run violates all
/// of `laws`.
async fn find(plant: PlantedBug, fault_set: FaultSet, laws: &[Law]) {
    let mut run = Run {
        span: SHORT,
        fault_set,
        plant: Some(plant),
        ..every_fault()
    };
    if plant == PlantedBug::NeverRelease {
        run.patience = SHORT;
    }
    loop {
        let folder = tempfile::tempdir().unwrap();
        let report = run.clone().on(Store::sqlite(folder.path())).await.unwrap();
        if laws.iter().all(|law| report.breaks(*law)) {
            return report.forget();
        }
        assert!(run.span < LONGEST, "no run broke all of {laws:?}:\n{report}");
        report.forget();
        run.span *= 2;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_ignore_their_deadline_are_found() {
    let laws = [Law::History(Rule::V2), Law::History(Rule::V1)];
    find(PlantedBug::IgnoreDeadline, FaultSet::STALLS, &laws).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_tokens_are_found() {
    find(
        PlantedBug::RepeatToken,
        FaultSet::NOTHING,
        &[Law::History(Rule::V3)],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_forgets_the_greatest_token_is_found() {
    find(
        PlantedBug::AcceptOldTokens,
        FaultSet::STALLS,
        &[Law::History(Rule::V4)],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_holders_that_block_waiters_are_found() {
    let fault_set = FaultSet {
        successions: true,
        ..FaultSet::NOTHING
    };
    find(PlantedBug::LongLease, fault_set, &[Law::L1]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_are_never_released_are_found() {
    find(PlantedBug::NeverRelease, FaultSet::NOTHING, &[Law::L2]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_overtake_are_found() {
    find(
        PlantedBug::SkipQueue,
        FaultSet::NOTHING,
        &[Law::History(Rule::L3)],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_left_in_the_store_is_found() {
    find(PlantedBug::LeaveLock, FaultSet::NOTHING, &[Law::L4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_holder_corrupts_only_the_unfenced_resource() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run {
        span: 2 * SHORT,
        fault_set: FaultSet::STALLS,
        ..every_fault()
    };
    let report = run.on(Store::sqlite(folder.path())).await.unwrap().expect_clean();
    assert!(report.lost_updates > 0, "{report}");
    assert!(report.verdict.refused > 0, "{report}");
}
