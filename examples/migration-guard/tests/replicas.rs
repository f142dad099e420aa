//! Replicas start at once, or while another migrates, or after it died half-way: each step is applied once.
//! Not here: what is wrong in a migration's SQL.
#![cfg(unix)]

#[path = "../../scene.rs"]
mod scene;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rusqlite::Connection;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use scene::{Process, Scene};

const FIRST: &str = "CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('one')";
const SECOND: &str = "INSERT INTO customers VALUES ('two')";

/// A folder with two steps; the second is a pipe, so that whoever reads it stays half-way until the test writes to it.
fn half_way(scene: &Scene) {
    fs::create_dir(scene.path("steps")).unwrap();
    fs::write(scene.path("steps/1.sql"), FIRST).unwrap();
    mknodat(
        CWD,
        scene.path("steps/2.sql"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
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

fn customers(scene: &Scene) -> Vec<String> {
    let shop = Connection::open(scene.path("shop.db")).unwrap();
    let mut names = shop.prepare("SELECT name FROM customers ORDER BY rowid").unwrap();
    let names = names.query_map((), |row| row.get(0)).unwrap();
    names.map(Result::unwrap).collect()
}

/// The tokens under which the steps were applied, in order.
fn fences(scene: &Scene) -> Vec<i64> {
    let shop = Connection::open(scene.path("shop.db")).unwrap();
    let mut fences = shop
        .prepare("SELECT fence FROM migrations ORDER BY name")
        .unwrap();
    let fences = fences.query_map((), |row| row.get(0)).unwrap();
    fences.map(Result::unwrap).collect()
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
    half_way(&scene);
    let mut migrator = replica(&scene, &scene.path("steps"), "1m");
    migrator.line_with("2: running");
    let mut next = replica(&scene, &scene.path("steps"), "1m");
    assert_eq!(next.line().as_deref(), Some("waiting"));

    migrator.send(Signal::KILL);
    assert_eq!(migrator.exit_code(), 128 + 9);
    complete(&scene);
    assert_eq!(next.rest(), ["1: done before", "2: running", "2: done", "ready"]);
    assert_eq!(next.exit_code(), 0);
    assert_eq!(customers(&scene), ["one", "two"]);
    let fences = fences(&scene);
    assert!(fences[0] < fences[1], "{fences:?}");
}

#[test]
fn a_migrator_that_was_stopped_beyond_its_lease_applies_nothing_more() {
    let scene = Scene::new();
    half_way(&scene);
    let mut migrator = replica(&scene, &scene.path("steps"), "1m");
    migrator.line_with("2: running");
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
    half_way(&scene);
    let migrator = replica(&scene, &scene.path("steps"), "1m");
    migrator.line_with("2: running");
    let mut other = replica(&scene, &scene.path("steps"), "200ms");
    assert_eq!(other.rest(), ["waiting"]);
    assert_eq!(other.exit_code(), 1);
}

#[test]
fn a_replica_that_is_asked_to_stop_while_it_waits_does_not_start() {
    let scene = Scene::new();
    half_way(&scene);
    let migrator = replica(&scene, &scene.path("steps"), "1m");
    migrator.line_with("2: running");
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
