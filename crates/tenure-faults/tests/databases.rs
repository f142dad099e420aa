//! Locks in the tables of a database server keep their guarantees under faults of workers, links and the server.

use tenure_faults::{Run, Store};
use tenure_servers::needs;

/// Runs with all faults on a store.
async fn hold_under_all_faults(store: std::io::Result<Store>) {
    let run = Run::new(env!("CARGO_BIN_EXE_tenure-faults"));
    let store = store.expect("the server starts");
    let report = run.on(store).await.expect("the run ends").expect_clean();
    assert!(
        report.verdict.grants > 100,
        "the run has too few grants to prove anything"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_rows_with_versions_hold_under_all_faults() {
    if needs("postgres", "postgresql") {
        hold_under_all_faults(Store::postgres("version").await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_unique_rows_hold_under_all_faults() {
    if needs("postgres", "postgresql") {
        hold_under_all_faults(Store::postgres("unique").await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_rows_with_versions_hold_under_all_faults() {
    if needs("mariadbd", "mariadb-server") {
        hold_under_all_faults(Store::mariadb("version").await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_unique_rows_hold_under_all_faults() {
    if needs("mariadbd", "mariadb-server") {
        hold_under_all_faults(Store::mariadb("unique").await).await;
    }
}
