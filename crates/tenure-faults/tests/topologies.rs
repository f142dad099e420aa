//! Locks on several Redis servers keep their guarantees under faults of workers, links and servers.

use tenure_faults::{Run, Store};
use tenure_servers::needs;

/// Runs with all faults on a store that `start` starts for a seed.
async fn hold_under_all_faults(start: fn(u64) -> std::io::Result<Store>) {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let run = Run::new(env!("CARGO_BIN_EXE_tenure-faults"));
    let store = start(run.seed).expect("the servers start");
    let report = run.on(store).await.expect("the run ends").expect_clean();
    assert!(
        report.verdict.grants > 100,
        "the run has too few grants to prove anything"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn quorum_locks_hold_under_all_faults() {
    hold_under_all_faults(|_| Store::quorum()).await;
}

/// The seed decides how many replicas acknowledge each grant: none, one or both.
#[tokio::test(flavor = "multi_thread")]
async fn sentinel_locks_hold_under_all_faults() {
    hold_under_all_faults(|seed| Store::sentinel(seed % 3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_locks_hold_under_all_faults() {
    hold_under_all_faults(|_| Store::cluster()).await;
}
