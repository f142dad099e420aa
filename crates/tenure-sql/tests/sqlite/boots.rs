//! Processes with another time namespace, as in containers, and restarts of the machine.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure_backend::{Backend, Claim, Clock, Fairness};
use tenure_testkit::ManualClock;

use crate::fixture::{
    ChildProcess, TestClient, child, connect, number, open, spawn, spawn_on, temp_lock_file,
};

fn change(path: &Path, statement: &str) {
    let changed = connect(path).execute_batch(statement);
    changed.expect("the statement fits the file");
}

/// Returns whether this process may create a time namespace.
fn may_create_time_namespace() -> bool {
    let unshare = Command::new("unshare")
        .args(["--time", "true"])
        .stderr(Stdio::null())
        .status();
    unshare.is_ok_and(|status| status.success())
}

fn kill_a_holder(path: &Path) {
    let holder = spawn_on(path, "child_tries_to_lock");
    assert_eq!(holder.read_line(), "granted");
    holder.signal(Signal::KILL);
}

/// Starts a child whose boot clock is 1000 s ahead, as in a container with its own time namespace.
///
/// If this process may not create one, the file is changed instead, as if written in a namespace whose clock is 1000
/// s behind.
fn spawn_in_another_time_namespace(test: &str, path: &Path) -> ChildProcess {
    if !may_create_time_namespace() {
        change(
            path,
            "UPDATE claim SET written_at = written_at - 1000000000000, expires_at = expires_at - 1000000000000, \
             forget_at = forget_at - 1000000000000 WHERE (SELECT clock_offset FROM store) = 0;
             UPDATE store SET clock_offset = -1000000000000 WHERE clock_offset = 0",
        );
        return spawn_on(path, test);
    }
    let unshare = "--time --boottime 1000 --fork --kill-child";
    spawn(test, &[("FILE", &path), ("UNSHARE", &unshare)])
}

#[tokio::test]
async fn another_time_namespace_is_refused_during_use() {
    let (_dir, path) = temp_lock_file();
    let mut holder = TestClient::new(open(&path).await.expect("the file opens"));
    holder.lock("k").await;
    let other = spawn_in_another_time_namespace("child_tries_to_lock", &path);
    let error = other.read_line();
    assert!(error.contains("time namespace"), "{error}");
}

#[test]
fn a_killed_holder_excludes_another_time_namespace() {
    let (_dir, path) = temp_lock_file();
    kill_a_holder(&path);
    let other = spawn_in_another_time_namespace("child_tries_to_lock", &path);
    assert_eq!(other.read_line(), "busy");
    other.end();
    let back = spawn_on(&path, "child_tries_to_lock");
    assert_eq!(back.read_line(), "busy");
    change(
        &path,
        "UPDATE claim SET expires_at = 1, forget_at = 1 WHERE live = 1",
    );
    drop(back);
    let next = spawn_on(&path, "child_tries_to_lock");
    assert_eq!(next.read_line(), "granted");
}

#[tokio::test]
async fn the_sweep_deletes_rows_of_an_earlier_boot() {
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.expect("the file is made");
    let mut client = TestClient::new(store.clone());
    for n in 0..200 {
        client.lock(&format!("key {n}")).await;
    }
    change(
        &path,
        "UPDATE claim SET written_at = written_at + 1000000000000, forget_at = forget_at + 1000000000000 \
         WHERE number <= 100",
    );
    for _ in 0..100 {
        let claim = client.lock("the last key").await;
        client.unlock(&claim).await;
    }
    let file = connect(&path);
    let left = |numbers: &str| {
        let select = format!("SELECT count(*) FROM claim WHERE key LIKE 'key %' AND number {numbers}");
        number(&file, &select)
    };
    assert_eq!([left("<= 100"), left("> 100")], [0, 100]);
}

#[tokio::test]
async fn rows_of_every_phase_store_the_time_of_their_write() {
    let (_dir, path) = temp_lock_file();
    let clock = ManualClock::new();
    let store = tenure_sql::sqlite::open(Some(path.clone()), Arc::new(clock.clone()))
        .await
        .expect("the file is made");
    let mut client = TestClient::new(store.clone());
    let ended = client.lock("ended").await;
    client.unlock(&ended).await;
    client.lock("granted").await;
    let queues = |claim: &mut Claim| claim.fairness = Fairness::Fifo;
    let (_, reply) = client.acquire("granted", queues).await;
    reply.expect("it waits");
    client.lock("watched").await;
    let (watcher, _) = client.acquire("watched", |_| {}).await;
    let _wakes = store.clone().watch(watcher).await.expect("the store watches");
    clock.advance(Duration::from_secs(5));
    let evicted = client.lock("evicted").await;
    client.evict(&evicted, Duration::from_secs(90)).await;
    let file = connect(&path);
    let mut select = file
        .prepare("SELECT phase, written_at FROM claim ORDER BY phase")
        .expect("the statement fits the file");
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let rows: Vec<(i64, i64)> = select
        .query_map([], read)
        .expect("the table can be read")
        .map(|row| row.expect("numbers are numbers"))
        .collect();
    let now = i64::try_from(clock.now().as_nanos()).expect("the clock began just now");
    let before = now - 5_000_000_000;
    let expected = [
        (0, before),
        (1, now),
        (2, before),
        (3, before),
        (4, before),
        (4, before),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn child_tries_to_lock() {
    child("child_tries_to_lock", async |role| match role.open().await {
        Ok(store) => {
            let granted = TestClient::new(store.clone()).try_lock("k").await;
            role.print(if granted { "granted" } else { "busy" });
            role.read_line();
        }
        Err(error) => role.print(&error.to_string()),
    });
}
