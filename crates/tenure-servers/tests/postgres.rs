//! A PostgreSQL server can be started, killed, emptied and paused, its clock can be stepped, and a standby follows it.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod certificate;
mod session;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use session::Session;
use tenure_servers::{Data, Postgres, SteppedClock, needs};

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Polls `done` until it returns true; panics with `what` after 30 s.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within 30 s");
        // sleep: the server is another process, so the test polls it.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a server; `None` if `TENURE_SKIP` names `postgres`.
fn start() -> Option<Postgres> {
    needs("postgres", "postgresql").then(|| Postgres::start().unwrap())
}

#[test]
fn a_server_answers_and_is_gone_when_it_is_dropped() {
    let Some(mut postgres) = start() else {
        return;
    };
    assert_eq!(postgres.ask("SELECT 1, 'ä'; SELECT 2").unwrap(), "1|ä\n2");
    let error = postgres.ask("SELECT nonsense; SELECT 1").unwrap_err().to_string();
    assert!(error.contains("column \"nonsense\" does not exist"), "{error}");
    let (pid, address) = (postgres.process().pid(), postgres.address());
    drop(postgres);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_restart_keeps_or_loses_the_data_as_requested() {
    let Some(mut postgres) = start() else {
        return;
    };
    postgres.ask("CREATE TABLE t AS SELECT 7 AS n").unwrap();
    postgres.restart(Data::Kept).unwrap();
    assert_eq!(postgres.ask("SELECT n FROM t").unwrap(), "7");
    postgres.process().stop();
    assert!(postgres.ask("SELECT n FROM t").is_err());
    postgres.restart(Data::Kept).unwrap();
    assert_eq!(postgres.ask("SELECT n FROM t").unwrap(), "7");
    postgres.restart(Data::Lost).unwrap();
    let error = postgres.ask("SELECT n FROM t").unwrap_err().to_string();
    assert!(error.contains("relation \"t\" does not exist"), "{error}");
}

#[test]
fn a_clock_step_moves_the_servers_time() {
    if !needs("postgres", "postgresql") {
        return;
    }
    let clock = SteppedClock::new().unwrap();
    let postgres = Postgres::start_with(&[], &[], Some(clock)).unwrap();
    let seconds = || {
        let seconds = postgres
            .ask("SELECT extract(epoch FROM clock_timestamp())")
            .unwrap();
        seconds.parse::<f64>().unwrap()
    };
    let before = seconds();
    postgres.clock().unwrap().step_ms(3_600_000).unwrap();
    assert!(seconds() >= before + 3_600.0);
    postgres.clock().unwrap().step_ms(-7_200_000).unwrap();
    assert!(seconds() < before);
}

#[test]
fn a_server_with_a_certificate_speaks_tls() {
    if !(needs("postgres", "postgresql") && needs("openssl", "openssl")) {
        return;
    }
    let (key, certificate) = certificate::new();
    let files = [("server.key", key.as_str()), ("server.crt", &certificate)];
    let mut postgres = Postgres::start_with(&["ssl = on"], &files, None).unwrap();
    postgres.restart(Data::Lost).unwrap();
    let mut session = Session::open(&format!("{}?sslmode=require", postgres.url()));
    session.send("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    assert_eq!(session.row(PATIENCE).as_deref(), Some("t"));
}

#[test]
fn a_paused_server_leaves_open_sessions_without_answer() {
    let Some(mut postgres) = start() else {
        return;
    };
    let mut session = Session::open(&postgres.url());
    session.send("SELECT 1");
    assert_eq!(session.row(PATIENCE).unwrap(), "1");
    postgres.process().pause();
    session.send("SELECT 2");
    let silence = session.row(Duration::from_millis(100));
    assert_eq!(silence, None);
    postgres.process().resume();
    assert_eq!(session.row(PATIENCE).unwrap(), "2");
    // A stop does not wait for the session.
    postgres.process().stop();
    assert!(!postgres.process().is_running());
}

#[test]
fn only_the_superuser_needs_no_password() {
    let Some(postgres) = start() else {
        return;
    };
    postgres.ask("CREATE ROLE ada LOGIN PASSWORD 's3cr3t'").unwrap();
    let user = |login: &str| {
        let mut session = Session::open(&format!("postgres://{login}@{}/postgres", postgres.address()));
        session.send("SELECT current_user");
        session.row(PATIENCE)
    };
    assert_eq!(user("ada:s3cr3t").as_deref(), Some("ada"));
    assert_eq!(user("ada:wrong"), None);
}

#[test]
fn a_standby_follows_until_it_is_promoted() {
    let Some(mut postgres) = start() else {
        return;
    };
    let mut standby = postgres.standby(&["log_connections = on"]).unwrap();
    assert_eq!(standby.ask("SHOW log_connections").unwrap(), "on");
    postgres.ask("CREATE TABLE t AS SELECT 7 AS n").unwrap();
    standby.process().kill();
    standby.restart(Data::Kept).unwrap();
    wait_until("the standby has the row", || {
        standby.ask("SELECT n FROM t").is_ok_and(|row| row == "7")
    });
    let error = standby.ask("INSERT INTO t VALUES (8)").unwrap_err().to_string();
    assert!(error.contains("read-only transaction"), "{error}");
    postgres.process().kill();
    standby.promote().unwrap();
    standby.ask("INSERT INTO t VALUES (8)").unwrap();
    assert_eq!(standby.ask("SELECT count(*) FROM t").unwrap(), "2");
}
