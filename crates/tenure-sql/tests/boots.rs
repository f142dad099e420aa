//! Processes with another boot id or time namespace, as in containers, and restarts of the machine.
#![cfg(target_os = "linux")]

mod fixture;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tenure_backend::{Backend, Claim, Clock, Fairness};
use tenure_testkit::ManualClock;

use fixture::{ChildProcess, TestClient, child, connect, number, open, spawn, spawn_on, temp_lock_file};

fn change(path: &Path, statement: &str) {
    let changed = connect(path).execute_batch(statement);
    changed.expect("the statement fits the file");
}

/// Returns whether this process may create a namespace with this option of `unshare`.
fn may_unshare(option: &str) -> bool {
    let unshare = Command::new("unshare")
        .args([option, "true"])
        .stderr(Stdio::null())
        .status();
    unshare.is_ok_and(|status| status.success())
}

/// Starts a child with another boot id than the file has, as in a container with its own boot id.
///
/// A mount replaces the boot id, which needs root. Without root, the boot id in the file is changed instead.
fn spawn_with_another_boot_id(test: &str, path: &Path) -> ChildProcess {
    if !may_unshare("--mount") {
        change(path, "UPDATE store SET boot = 'another boot id'");
        return spawn_on(path, test);
    }
    let boot_id = path.with_extension("boot_id");
    fs::write(&boot_id, "00000000-0000-4000-8000-000000000000\n").expect("this user owns the directory");
    spawn(
        test,
        &[("FILE", &path), ("UNSHARE", &"--mount"), ("BOOT_ID", &boot_id)],
    )
}

#[tokio::test]
async fn a_holder_excludes_a_process_with_another_boot_id() {
    let (_dir, path) = temp_lock_file();
    let mut holder = TestClient::new(open(&path).await.expect("the file opens"));
    let held = holder.lock("k").await;
    let other = spawn_with_another_boot_id("child_tries_to_lock", &path);
    assert_eq!(other.read_line(), "busy");
    holder.unlock(&held).await;
}

#[tokio::test]
async fn a_holder_with_another_boot_id_excludes_other_processes() {
    let (_dir, path) = temp_lock_file();
    let mut client = TestClient::new(open(&path).await.expect("the file opens"));
    let other = spawn_with_another_boot_id("child_tries_to_lock", &path);
    assert_eq!(other.read_line(), "granted");
    assert!(!client.try_lock("k").await);
    let mut newcomer = TestClient::new(open(&path).await.expect("the file opens"));
    assert!(!newcomer.try_lock("k").await);
}

fn kill_a_holder(path: &Path) {
    let holder = spawn_on(path, "child_tries_to_lock");
    assert_eq!(holder.read_line(), "granted");
    holder.signal(Signal::KILL);
}

/// A killed holder's claim ends only with its lease, whatever boot ids other processes have.
#[test]
fn a_killed_holder_excludes_a_process_with_another_boot_id() {
    let (_dir, path) = temp_lock_file();
    kill_a_holder(&path);
    for _ in 0..2 {
        let other = spawn_with_another_boot_id("child_tries_to_lock", &path);
        assert_eq!(other.read_line(), "busy");
        let usual = spawn_on(&path, "child_tries_to_lock");
        assert_eq!(usual.read_line(), "busy");
    }
}

/// Starts a child whose boot clock is 1000 s ahead, as in a container with its own time namespace.
///
/// If this process may not create one, the file is changed instead, as if written in a namespace whose clock is 1000
/// s behind.
fn spawn_in_another_time_namespace(test: &str, path: &Path) -> ChildProcess {
    if !may_unshare("--time") {
        change(
            path,
            "UPDATE store SET clock = '-1000000000000 ' || boot || ' ' || namespace WHERE clock LIKE '0 %';
             UPDATE claim SET until = until - 1000000000000, forget = forget - 1000000000000",
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
    change(&path, "UPDATE claim SET until = 1, forget = 1 WHERE live = 1");
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
        "UPDATE claim SET until = until + 1, forget = forget + 1000000000000 WHERE number <= 100",
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

/// Each write of a row sets its column `lease` to the time that is left until the latest of its columns `until`,
/// `reserved` and `forget`.
#[tokio::test]
async fn rows_of_every_phase_store_their_lease() {
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
        .prepare("SELECT phase, lease / 1000000000, max(until, reserved, forget) - lease FROM claim ORDER BY phase")
        .expect("the statement fits the file");
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let rows: Vec<(i64, i64, i64)> = select
        .query_map([], read)
        .expect("the table can be read")
        .map(|row| row.expect("no row is without a lease"))
        .collect();
    let now = i64::try_from(clock.now().as_nanos()).expect("the clock began just now");
    let before = now - 5_000_000_000;
    let expected = [
        (0, 10, before),
        (1, 90, now),
        (2, 10, before),
        (3, 70, before),
        (4, 70, before),
        (4, 70, before),
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
