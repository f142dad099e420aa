//! Replicas start at once, during a migration, or after a migrator has died half-way: each step is applied once.
#![cfg(unix)]

#[path = "../../fixture.rs"]
mod fixture;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use fixture::{Fixture, Process};
use rusqlite::Connection;
use rusqlite::types::FromSql;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;
use tenure_servers::{Postgres, needs};

const FIRST: &str = "CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('one')";
const SECOND: &str = "INSERT INTO customers VALUES ('two')";

/// Starts a migrator with `start`. It waits after its first step: the file of the second step is a pipe, still without a
/// writer.
fn half_way_with(fixture: &Fixture, start: impl Fn(&Path) -> Process) -> Process {
    fs::create_dir(fixture.path("steps")).unwrap();
    fs::write(fixture.path("steps/1.sql"), FIRST).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, fixture.path("steps/2.sql"), FileType::Fifo, mode, 0).unwrap();
    let migrator = start(&fixture.path("steps"));
    migrator.line_with("2: running");
    migrator
}

fn half_way(fixture: &Fixture) -> Process {
    half_way_with(fixture, |folder| replica(fixture, folder, "1m"))
}

fn complete(fixture: &Fixture) {
    fs::remove_file(fixture.path("steps/2.sql")).unwrap();
    fs::write(fixture.path("steps/2.sql"), SECOND).unwrap();
}

fn replica(fixture: &Fixture, folder: &Path, max_wait: &str) -> Process {
    let mut command = fixture.command(env!("CARGO_BIN_EXE_migration-guard"));
    command.arg(folder).args(["shop.db", max_wait]);
    Process::start(command)
}

/// A replica whose locks lie in the database that it migrates.
fn replica_on(server: &Postgres, fixture: &Fixture, folder: &Path) -> Process {
    let mut command = fixture.command(env!("CARGO_BIN_EXE_migration-guard"));
    command.env_remove("TENURE_URL");
    command.arg(folder).args([&server.url(), "1m"]);
    Process::start(command)
}

/// Values of one column, in the order in which the rows were inserted.
fn column<T: FromSql>(fixture: &Fixture, select: &str) -> Vec<T> {
    let shop = Connection::open(fixture.path("shop.db")).unwrap();
    let mut rows = shop.prepare(&format!("{select} ORDER BY rowid")).unwrap();
    let rows = rows.query_map((), |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn customers(fixture: &Fixture) -> Vec<String> {
    column(fixture, "SELECT name FROM customers")
}

/// Waits until all replicas have started. Exactly one has migrated.
fn assert_one_migrated(mut replicas: Vec<Process>) {
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
}

#[test]
fn one_of_eight_replicas_migrates_and_all_start() {
    let fixture = Fixture::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    assert_one_migrated((0..8).map(|_| replica(&fixture, &folder, "1m")).collect());
    assert_eq!(customers(&fixture), ["the first"]);
}

#[test]
fn one_of_ten_replicas_migrates_postgres_and_all_start() {
    if !needs("postgres", "postgresql") {
        return;
    }
    let (fixture, server) = (Fixture::new(), Postgres::start().expect("the server starts"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    assert_one_migrated((0..10).map(|_| replica_on(&server, &fixture, &folder)).collect());
    assert_eq!(server.ask("SELECT name FROM customers").unwrap(), "the first");
}

#[test]
fn a_dead_migrator_of_postgres_is_replaced() {
    if !needs("postgres", "postgresql") {
        return;
    }
    let (fixture, server) = (Fixture::new(), Postgres::start().expect("the server starts"));
    let mut migrator = half_way_with(&fixture, |folder| replica_on(&server, &fixture, folder));
    let mut next = replica_on(&server, &fixture, &fixture.path("steps"));
    assert_eq!(next.line().as_deref(), Some("waiting"));

    migrator.send(Signal::KILL);
    assert_eq!(migrator.exit_code(), 128 + 9);
    complete(&fixture);
    assert_eq!(next.rest(), ["1: done before", "2: running", "2: done", "ready"]);
    assert_eq!(next.exit_code(), 0);
    assert_eq!(
        server.ask("SELECT name FROM customers ORDER BY name").unwrap(),
        "one\ntwo"
    );
    let rising =
        "SELECT count(*) FROM migrations a, migrations b WHERE a.name < b.name AND a.fence < b.fence";
    assert_eq!(server.ask(rising).unwrap(), "1");
}

#[test]
fn the_next_migrator_continues_after_one_died() {
    let fixture = Fixture::new();
    let mut migrator = half_way(&fixture);
    let mut next = replica(&fixture, &fixture.path("steps"), "1m");
    assert_eq!(next.line().as_deref(), Some("waiting"));

    migrator.send(Signal::KILL);
    assert_eq!(migrator.exit_code(), 128 + 9);
    complete(&fixture);
    assert_eq!(next.rest(), ["1: done before", "2: running", "2: done", "ready"]);
    assert_eq!(next.exit_code(), 0);
    assert_eq!(customers(&fixture), ["one", "two"]);
    let fences: Vec<i64> = column(&fixture, "SELECT fence FROM migrations");
    assert!(fences[0] < fences[1], "{fences:?}");
}

#[test]
fn a_migrator_stopped_beyond_its_lease_applies_no_more_steps() {
    let fixture = Fixture::new();
    let mut migrator = half_way(&fixture);
    // This call returns when the migrator has opened the pipe to read it. Then the test suspends the migrator.
    let mut pipe = File::options()
        .write(true)
        .open(fixture.path("steps/2.sql"))
        .unwrap();
    migrator.send(Signal::STOP);
    complete(&fixture);
    let next = replica(&fixture, &fixture.path("steps"), "1m");
    next.line_with("ready");

    migrator.send(Signal::CONT);
    pipe.write_all(b"INSERT INTO customers VALUES ('stale')").unwrap();
    drop(pipe);
    assert_eq!(migrator.rest(), [""; 0]);
    assert_eq!(migrator.exit_code(), 1);
    assert_eq!(customers(&fixture), ["one", "two"]);
}

#[test]
fn a_replica_does_not_start_after_its_longest_wait() {
    let fixture = Fixture::new();
    let _migrator = half_way(&fixture);
    let mut other = replica(&fixture, &fixture.path("steps"), "200ms");
    assert_eq!(other.rest(), ["waiting"]);
    assert_eq!(other.exit_code(), 1);
}

#[test]
fn a_waiting_replica_that_is_asked_to_stop_does_not_start() {
    let fixture = Fixture::new();
    let _migrator = half_way(&fixture);
    for signal in [Signal::INT, Signal::TERM] {
        let mut other = replica(&fixture, &fixture.path("steps"), "1m");
        assert_eq!(other.line().as_deref(), Some("waiting"));
        other.send(signal);
        assert_eq!(other.rest(), [""; 0]);
        assert_eq!(other.exit_code(), 1);
    }
}

#[test]
fn redis_works_as_the_lock_store() {
    fixture::assert_speaks_redis(env!("CARGO_BIN_EXE_migration-guard"), &[".", "shop.db"]);
}

#[test]
fn help_shows_the_usage() {
    fixture::assert_shows_its_usage(env!("CARGO_BIN_EXE_migration-guard"));
}
