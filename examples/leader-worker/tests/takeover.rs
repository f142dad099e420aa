//! The leader is killed, stopped or asked to end. Another process takes over, and late writes of the first are refused.
#![cfg(unix)]

#[path = "../../fixture.rs"]
mod fixture;

use std::fs;
use std::time::{Duration, Instant};

use fixture::{Fixture, LIMIT, Process};
use rusqlite::Connection;
use rustix::process::Signal;

const LEASE: Duration = Duration::from_secs(2);
/// Time for a take-over beyond the lease: a poll, on a busy machine.
const A_LITTLE: Duration = Duration::from_secs(2);

fn start(fixture: &Fixture) -> Process {
    let mut command = fixture.command(env!("CARGO_BIN_EXE_leader-worker"));
    command.args(["spool", "journal.db"]);
    Process::start(command)
}

/// Starts a leader and a process that waits for the lead.
fn two(fixture: &Fixture) -> (Process, Process) {
    fs::create_dir(fixture.path("spool")).unwrap();
    let leader = start(fixture);
    leader.line_with("leading");
    let next = start(fixture);
    assert_eq!(
        next.line(),
        Some(format!("led by worker {}", leader.pid())),
        "one works at a time"
    );
    (leader, next)
}

fn add_task(fixture: &Fixture, name: &str) {
    fs::write(fixture.path("spool").join(name), "").unwrap();
}

fn journal(fixture: &Fixture) -> Connection {
    let journal = Connection::open(fixture.path("journal.db")).unwrap();
    journal.busy_timeout(LIMIT).unwrap();
    journal
}

/// Locks the journal until the returned connection is dropped.
fn keep_busy(fixture: &Fixture) -> Connection {
    let journal = journal(fixture);
    journal.execute_batch("BEGIN IMMEDIATE").unwrap();
    journal
}

/// Asserts that the journal has exactly these tasks, each done by its process, and that the token rises when the leader
/// changes.
fn assert_recorded(fixture: &Fixture, tasks: &[(&str, &Process)]) {
    let journal = journal(fixture);
    let mut rows = journal
        .prepare("SELECT task, worker, fence FROM journal ORDER BY rowid")
        .unwrap();
    let rows = rows.query_map((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let rows: Vec<(String, u32, i64)> = rows.unwrap().map(Result::unwrap).collect();
    let did = rows.iter().map(|(task, worker, _)| (task.as_str(), *worker));
    let expected = tasks.iter().map(|(task, process)| (*task, process.pid()));
    assert!(did.eq(expected), "{rows:?}");
    let rise = |pair: &[(String, u32, i64)]| pair[0].1 == pair[1].1 || pair[0].2 < pair[1].2;
    assert!(rows.windows(2).all(rise), "{rows:?}");
}

#[tokio::test]
async fn a_worker_waits_while_another_creates_the_journal() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("spool")).unwrap();
    let other = tenure::connect(&fixture.url()).await.unwrap();
    let opening = other.mutex("leader-worker:opening").lock().await.unwrap();
    let making = keep_busy(&fixture);
    let worker = start(&fixture);
    // sleep: long enough for the worker to fail at the locked journal, if it did not wait for the lock `opening`.
    tokio::time::sleep(A_LITTLE / 4).await;
    drop(making);
    opening.unlock().await.unwrap();
    worker.line_with("leading");
}

#[test]
fn a_killed_leader_is_replaced_after_its_lease() {
    let fixture = Fixture::new();
    let (leader, next) = two(&fixture);
    add_task(&fixture, "a");
    leader.line_with("a: done");
    let killed = Instant::now();
    leader.send(Signal::KILL);
    next.line_with("leading");
    assert!(killed.elapsed() < LEASE + A_LITTLE, "{:?}", killed.elapsed());
    add_task(&fixture, "b");
    next.line_with("b: done");
    assert_recorded(&fixture, &[("a", &leader), ("b", &next)]);
}

#[test]
fn a_leader_that_is_asked_to_stop_resigns_at_once() {
    for signal in [Signal::INT, Signal::TERM] {
        let fixture = Fixture::new();
        let (mut leader, next) = two(&fixture);
        let asked = Instant::now();
        leader.send(signal);
        next.line_with("leading");
        assert!(asked.elapsed() < LEASE / 2, "{:?}", asked.elapsed());
        assert_eq!(leader.exit_code(), 0);
    }
}

#[test]
fn a_leader_stopped_beyond_its_lease_does_not_continue() {
    let fixture = Fixture::new();
    let (leader, next) = two(&fixture);
    leader.send(Signal::STOP);
    next.line_with("leading");
    add_task(&fixture, "a");
    next.line_with("a: done");
    leader.send(Signal::CONT);
    assert!(
        leader
            .line()
            .unwrap()
            .starts_with("stopped: the lock on \"leader-worker\" was lost")
    );
    add_task(&fixture, "b");
    next.line_with("b: done");
    assert_recorded(&fixture, &[("a", &next), ("b", &next)]);
}

#[test]
fn a_late_write_of_a_stopped_leader_is_refused() {
    let fixture = Fixture::new();
    let (leader, next) = two(&fixture);
    // While the test locks the journal, the leader's write begins and cannot end.
    let busy = keep_busy(&fixture);
    add_task(&fixture, "a");
    leader.line_with("a: begun");
    leader.send(Signal::STOP);
    next.line_with("a: begun");
    drop(busy);
    next.line_with("a: done");
    leader.send(Signal::CONT);
    assert_eq!(
        leader.line().as_deref(),
        Some("refused: a later leader has worked")
    );
    assert_recorded(&fixture, &[("a", &next)]);
}

#[test]
fn redis_works_as_the_lock_store() {
    fixture::assert_speaks_redis(env!("CARGO_BIN_EXE_leader-worker"), &["tasks", "journal.db"]);
}

#[test]
fn help_shows_the_usage() {
    fixture::assert_shows_its_usage(env!("CARGO_BIN_EXE_leader-worker"));
}
