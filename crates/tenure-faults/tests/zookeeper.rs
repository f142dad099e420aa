//! Locks in an ensemble of ZooKeeper keep their guarantees under faults of workers, links and servers.

use std::time::Duration;

use tenure_faults::{Run, Store};
use tenure_servers::needs;

#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_locks_hold_under_all_faults() {
    if !needs("zookeeper", "zookeeper") {
        return;
    }
    let run = Run {
        // A holder of the longest lease may die, and a leader be elected meanwhile.
        patience: Duration::from_secs(90),
        ..Run::new(env!("CARGO_BIN_EXE_tenure-faults"))
    };
    let store = Store::zookeeper().await.expect("the servers start");
    let report = run.on(store).await.expect("the run ends").expect_clean();
    assert!(
        report.verdict.grants > 100,
        "the run has too few grants to prove anything"
    );
}
