//! No process of a server outlives the program that started it, even if that program is killed.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod session;

use std::any::Any;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use session::Session;
use tenure_servers::{MariaDb, PgBouncer, Postgres, Redis, needs};

/// Set in the program that starts the server.
const STARTER: &str = "TENURE_SERVERS_STARTER";

const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the test `test` in another program, which starts a server. Kills that program, and waits until no process of
/// the server is left. `start` returns the ID of the server's process, and the values that keep it running.
fn kill_starter(test: &str, start: impl FnOnce() -> (u32, Box<dyn Any>)) {
    if std::env::var_os(STARTER).is_some() {
        let (pid, _server) = start();
        println!("server {pid} runs");
        // Returns when this program is killed.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    // A killed program does not remove its temporary folders. Servers that run as other users read them too.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let mut starter = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(STARTER, "1")
        .env("TMPDIR", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(starter.stdout.take().unwrap()).lines();
    let pid = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, pid) = line.strip_suffix(" runs")?.split_once("server ")?;
        Some(pid.to_owned())
    });
    let pid = pid.expect("the server starts");
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    starter.kill().unwrap();
    starter.wait().unwrap();
    let end = Instant::now() + PATIENCE;
    for pid in children.split_whitespace().chain([pid.as_str()]) {
        while is_running(pid) {
            assert!(Instant::now() < end, "process {pid} still runs: {children}");
            // sleep: no event announces the end of another program's child.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Returns whether a process exists that has not ended.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn redis_dies_with_its_starter() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    kill_starter("redis_dies_with_its_starter", || {
        let mut redis = Redis::start().unwrap();
        (redis.process().pid(), Box::new(redis))
    });
}

#[test]
fn postgres_and_its_sessions_die_with_their_starter() {
    if !needs("postgres", "postgresql") {
        return;
    }
    kill_starter("postgres_and_its_sessions_die_with_their_starter", || {
        let mut postgres = Postgres::start().unwrap();
        let mut sessions = [(); 2].map(|()| Session::open(&postgres.url()));
        // One session waits for its client, the other for the end of a statement.
        for (session, then) in sessions.iter_mut().zip(["", "; SELECT pg_sleep(3600)"]) {
            session.send(&format!("SELECT 1{then}"));
            assert_eq!(session.row(PATIENCE).as_deref(), Some("1"));
        }
        (postgres.process().pid(), Box::new((postgres, sessions)))
    });
}

#[test]
fn pgbouncer_dies_with_its_starter() {
    if !(needs("postgres", "postgresql") && needs("pgbouncer", "pgbouncer")) {
        return;
    }
    kill_starter("pgbouncer_dies_with_its_starter", || {
        let postgres = Postgres::start().unwrap();
        let mut pgbouncer = PgBouncer::start(&postgres).unwrap();
        (pgbouncer.process().pid(), Box::new((postgres, pgbouncer)))
    });
}

#[test]
fn mariadb_dies_with_its_starter() {
    if !needs("mariadbd", "mariadb-server") {
        return;
    }
    kill_starter("mariadb_dies_with_its_starter", || {
        let mut mariadb = MariaDb::start().unwrap();
        (mariadb.process().pid(), Box::new(mariadb))
    });
}
