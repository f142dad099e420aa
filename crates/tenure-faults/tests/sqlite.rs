//! Locks on SQLite keep their guarantees while workers are paused, stalled and killed.

use tenure_faults::{Run, Store};

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_locks_hold_under_worker_faults() {
    let folder = tempfile::tempdir().unwrap();
    let run = Run::new(env!("CARGO_BIN_EXE_tenure-faults"));
    let report = run.on(Store::sqlite(folder.path())).await.unwrap().expect_clean();
    assert!(
        report.verdict.grants > 100,
        "the run has too few grants to prove anything"
    );
}
