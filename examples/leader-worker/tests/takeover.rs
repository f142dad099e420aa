//! The leader is killed, stopped or asked to stop: another works, and nothing that the first still sends is recorded.
#![cfg(unix)]

#[path = "../../scene.rs"]
mod scene;

use std::fs;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;
use scene::{LIMIT, Process, Scene};

/// The example's.
const LEASE: Duration = Duration::from_secs(2);
/// What a take-over may need beyond the lease: a poll, and a machine that does other work too.
const A_LITTLE: Duration = Duration::from_secs(2);

fn start(scene: &Scene) -> Process {
    let mut command = scene.command(env!("CARGO_BIN_EXE_leader-worker"));
    command.args(["spool", "journal.db"]);
    Process::start(command)
}

/// A leader, and another process that waits.
fn two(scene: &Scene) -> (Process, Process) {
    fs::create_dir(scene.path("spool")).unwrap();
    let leader = start(scene);
    leader.line_with("leading");
    let next = start(scene);
    assert_eq!(
        next.line(),
        Some(format!("led by worker {}", leader.pid())),
        "one works at a time"
    );
    (leader, next)
}

fn add_task(scene: &Scene, name: &str) {
    fs::write(scene.path("spool").join(name), "").unwrap();
}

fn journal(scene: &Scene) -> Connection {
    let journal = Connection::open(scene.path("journal.db")).unwrap();
    journal.busy_timeout(LIMIT).unwrap();
    journal
}

/// Keeps the journal busy until the connection is dropped.
fn keep_busy(scene: &Scene) -> Connection {
    let journal = journal(scene);
    journal.execute_batch("BEGIN IMMEDIATE").unwrap();
    journal
}

/// The journal has these tasks, each done by that process; and the tokens rose with each change of the leader.
fn assert_recorded(scene: &Scene, tasks: &[(&str, &Process)]) {
    let journal = journal(scene);
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
async fn a_worker_waits_while_another_makes_the_journal() {
    let scene = Scene::new();
    fs::create_dir(scene.path("spool")).unwrap();
    let other = tenure::connect(&scene.url()).await.unwrap();
    let opening = other.mutex("leader-worker:opening").lock().await.unwrap();
    let making = keep_busy(&scene);
    let worker = start(&scene);
    // sleep: time in which a worker that did not wait would have failed.
    tokio::time::sleep(A_LITTLE / 4).await;
    drop(making);
    opening.unlock().await.unwrap();
    worker.line_with("leading");
}

#[test]
fn a_killed_leader_is_followed_within_its_lease_and_a_little() {
    let scene = Scene::new();
    let (leader, next) = two(&scene);
    add_task(&scene, "a");
    leader.line_with("a: done");
    let killed = Instant::now();
    leader.send(Signal::KILL);
    next.line_with("leading");
    assert!(killed.elapsed() < LEASE + A_LITTLE, "{:?}", killed.elapsed());
    add_task(&scene, "b");
    next.line_with("b: done");
    assert_recorded(&scene, &[("a", &leader), ("b", &next)]);
}

#[test]
fn a_leader_that_is_asked_to_stop_gives_the_lead_back_at_once() {
    for signal in [Signal::INT, Signal::TERM] {
        let scene = Scene::new();
        let (mut leader, next) = two(&scene);
        let asked = Instant::now();
        leader.send(signal);
        next.line_with("leading");
        assert!(asked.elapsed() < LEASE / 2, "{:?}", asked.elapsed());
        assert_eq!(leader.exit_code(), 0);
    }
}

#[test]
fn a_leader_that_was_stopped_beyond_its_lease_does_not_go_on() {
    let scene = Scene::new();
    let (leader, next) = two(&scene);
    leader.send(Signal::STOP);
    next.line_with("leading");
    add_task(&scene, "a");
    next.line_with("a: done");
    leader.send(Signal::CONT);
    assert!(
        leader
            .line()
            .unwrap()
            .starts_with("stopped: the lock on \"leader-worker\" was lost")
    );
    add_task(&scene, "b");
    next.line_with("b: done");
    assert_recorded(&scene, &[("a", &next), ("b", &next)]);
}

#[test]
fn a_task_in_the_middle_of_which_the_leader_was_stopped_is_refused_by_its_token() {
    let scene = Scene::new();
    let (leader, next) = two(&scene);
    // While the journal is busy, the leader's record has begun and cannot end.
    let busy = keep_busy(&scene);
    add_task(&scene, "a");
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
    assert_recorded(&scene, &[("a", &next)]);
}

#[test]
fn a_redis_may_be_its_lock_store() {
    scene::assert_speaks_redis(env!("CARGO_BIN_EXE_leader-worker"), &["tasks", "journal.db"]);
}
