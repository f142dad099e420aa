//! Locks in a cluster of etcd keep their guarantees under faults of workers, links and members.

use std::time::Duration;

use tenure_faults::{Run, Store};
use tenure_servers::needs;

#[tokio::test(flavor = "multi_thread")]
async fn etcd_locks_hold_under_all_faults() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let run = Run {
        // A holder of the longest lease may die, and a leader be elected meanwhile.
        patience: Duration::from_secs(60),
        ..Run::new(env!("CARGO_BIN_EXE_tenure-faults"))
    };
    let store = Store::etcd().await.expect("the members start");
    let report = run.on(store).await.expect("the run ends").expect_clean();
    assert!(
        report.verdict.grants > 100,
        "the run has too few grants to prove anything"
    );
}
