//! Replicas start at once, or while another migrates, or after it died half-way: each step is applied once.
#![cfg(unix)]

#[path = "../../scene.rs"]
mod scene;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::FromSql;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use scene::{Process, Scene};

const FIRST: &str = "CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('one')";
const SECOND: &str = "INSERT INTO customers VALUES ('two')";

/// A migrator in the middle of two steps; the second is a pipe, so that it stays there until the test writes to it.
fn half_way(scene: &Scene) -> Process {
    fs::create_dir(scene.path("steps")).unwrap();
    fs::write(scene.path("steps/1.sql"), FIRST).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, scene.path("steps/2.sql"), FileType::Fifo, mode, 0).unwrap();
    let migrator = replica(scene, &scene.path("steps"), "1m");
    migrator.line_with("2: running");
    migrator
}

/// Replaces the pipe.
fn complete(scene: &Scene) {
    fs::remove_file(scene.path("steps/2.sql")).unwrap();
    fs::write(scene.path("steps/2.sql"), SECOND).unwrap();
}

fn replica(scene: &Scene, folder: &Path, max_wait: &str) -> Process {
    let mut command = scene.command(env!("CARGO_BIN_EXE_migration-guard"));
    command.arg(folder).args(["shop.db", max_wait]);
    Process::start(command)
}

/// A column of a table, in the order in which its rows were written.
fn column<T: FromSql>(scene: &Scene, select: &str) -> Vec<T> {
    let shop = Connection::open(scene.path("shop.db")).unwrap();
    let mut rows = shop.prepare(&format!("{select} ORDER BY rowid")).unwrap();
    let rows = rows.query_map((), |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn customers(scene: &Scene) -> Vec<String> {
    column(scene, "SELECT name FROM customers")
}

#[test]
fn of_eight_replicas_one_migrates_and_all_are_ready() {
    let scene = Scene::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut replicas: Vec<_> = (0..8).map(|_| replica(&scene, &folder, "1m")).collect();
    let mut migrators = 0;
    for replica in &mut replicas {
        let said = replica.rest();
        assert_eq!(said.last().map(String::as_str), Some("ready"), "{said:?}");
        assert_eq!(replica.exit_code(), 0);
        let done = said.iter().filter(|line| line.ends_with(": done")).count();
        let before = said.iter().filter(|line| line.ends_with(": done before")).count();
        assert!((done, before) == (2, 0) || (done, before) == (0, 2), "{said:?}");
        migrators += done / 2;
    }
    assert_eq!(migrators, 1);
    assert_eq!(customers(&scene), ["the first"]);
}

#[test]
fn when_the_migrator_dies_half_way_the_next_goes_on_where_it_ended() {
    let scene = Scene::new();
    let mut migrator = half_way(&scene);
    let mut next = replica(&scene, &scene.path("steps"), "1m");
    assert_eq!(next.line().as_deref(), Some("waiting"));

    migrator.send(Signal::KILL);
    assert_eq!(migrator.exit_code(), 128 + 9);
    complete(&scene);
    assert_eq!(next.rest(), ["1: done before", "2: running", "2: done", "ready"]);
    assert_eq!(next.exit_code(), 0);
    assert_eq!(customers(&scene), ["one", "two"]);
    let fences: Vec<i64> = column(&scene, "SELECT fence FROM migrations");
    assert!(fences[0] < fences[1], "{fences:?}");
}

#[test]
fn a_migrator_that_was_stopped_beyond_its_lease_applies_nothing_more() {
    let scene = Scene::new();
    let mut migrator = half_way(&scene);
    // Opens when the migrator has opened its end: it reads, and is stopped there.
    let mut pipe = File::options()
        .write(true)
        .open(scene.path("steps/2.sql"))
        .unwrap();
    migrator.send(Signal::STOP);
    complete(&scene);
    let next = replica(&scene, &scene.path("steps"), "1m");
    next.line_with("ready");

    migrator.send(Signal::CONT);
    pipe.write_all(b"INSERT INTO customers VALUES ('stale')").unwrap();
    drop(pipe);
    assert_eq!(migrator.rest(), [""; 0]);
    assert_eq!(migrator.exit_code(), 1);
    assert_eq!(customers(&scene), ["one", "two"]);
}

#[test]
fn a_replica_that_has_waited_for_the_longest_time_does_not_start() {
    let scene = Scene::new();
    let _migrator = half_way(&scene);
    let mut other = replica(&scene, &scene.path("steps"), "200ms");
    assert_eq!(other.rest(), ["waiting"]);
    assert_eq!(other.exit_code(), 1);
}

#[test]
fn a_replica_that_is_asked_to_stop_while_it_waits_does_not_start() {
    let scene = Scene::new();
    let _migrator = half_way(&scene);
    for signal in [Signal::INT, Signal::TERM] {
        let mut other = replica(&scene, &scene.path("steps"), "1m");
        assert_eq!(other.line().as_deref(), Some("waiting"));
        other.send(signal);
        assert_eq!(other.rest(), [""; 0]);
        assert_eq!(other.exit_code(), 1);
    }
}

#[test]
fn a_redis_may_be_its_lock_store() {
    scene::assert_speaks_redis(env!("CARGO_BIN_EXE_migration-guard"), &[".", "shop.db"]);
}
