//! Locks on Redis keep their guarantees under faults of workers, links and the server.

use tenure_faults::{Run, Store};
use tenure_servers::{Disk, needs};

const WORKER: &str = env!("CARGO_BIN_EXE_tenure-faults");

#[tokio::test(flavor = "multi_thread")]
async fn redis_locks_hold_under_all_faults() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let store = Store::redis(Disk::EveryWrite).unwrap();
    let report = Run::new(WORKER).on(store).await.unwrap().expect_clean();
    assert!(
        report.verdict.grants > 100,
        "the run has too few grants to prove anything"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_rise_across_restarts_that_lose_data() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let store = Store::redis(Disk::Snapshots).unwrap();
    Run::new(WORKER).on(store).await.unwrap().expect_clean();
}
