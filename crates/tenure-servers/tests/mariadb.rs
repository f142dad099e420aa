//! A MariaDB server can be started, stopped, killed and emptied, and its clock can be stepped.

mod certificate;

use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use tenure_servers::{Data, MariaDb, SteppedClock, needs};

/// Starts a server; `None` if `TENURE_SKIP` names `mariadbd`.
fn start() -> Option<MariaDb> {
    needs("mariadbd", "mariadb-server").then(|| MariaDb::start().unwrap())
}

#[test]
fn a_server_answers_and_is_gone_when_it_is_dropped() {
    let Some(mut mariadb) = start() else {
        return;
    };
    assert_eq!(mariadb.ask("SELECT 1, 'ä'; SELECT 2").unwrap(), "1\tä\n2");
    let error = mariadb.ask("SELECT nonsense; SELECT 1").unwrap_err().to_string();
    assert!(error.contains("Unknown column 'nonsense'"), "{error}");
    let (pid, address) = (mariadb.process().pid(), mariadb.address());
    drop(mariadb);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_restart_keeps_or_loses_the_data_as_requested() {
    let Some(mut mariadb) = start() else {
        return;
    };
    let table =
        "CREATE DATABASE d; CREATE TABLE d.t (n INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO d.t VALUES (7)";
    mariadb.ask(table).unwrap();
    mariadb.restart(Data::Kept).unwrap();
    assert_eq!(mariadb.ask("SELECT n FROM d.t").unwrap(), "7");
    mariadb.process().stop();
    assert!(mariadb.ask("SELECT n FROM d.t").is_err());
    mariadb.restart(Data::Kept).unwrap();
    assert_eq!(mariadb.ask("SELECT n FROM d.t").unwrap(), "7");
    mariadb.restart(Data::Lost).unwrap();
    let error = mariadb.ask("SELECT n FROM d.t").unwrap_err().to_string();
    assert!(error.contains("Table 'd.t' doesn't exist"), "{error}");
}

#[test]
fn a_clock_step_moves_the_servers_time() {
    if !needs("mariadbd", "mariadb-server") {
        return;
    }
    let clock = SteppedClock::new().unwrap();
    let mariadb = MariaDb::start_with(&[], &[], Some(clock)).unwrap();
    let seconds = || {
        let seconds = mariadb.ask("SELECT unix_timestamp(sysdate(6))").unwrap();
        seconds.parse::<f64>().unwrap()
    };
    let before = seconds();
    mariadb.clock().unwrap().step_ms(3_600_000).unwrap();
    assert!(seconds() >= before + 3_600.0);
    mariadb.clock().unwrap().step_ms(-7_200_000).unwrap();
    assert!(seconds() < before);
}

/// A wait ends at a time of the server's clock.
#[test]
fn a_clock_step_leaves_the_servers_waits_as_long_as_they_are() {
    if !needs("mariadbd", "mariadb-server") {
        return;
    }
    let clock = SteppedClock::new().unwrap();
    let mariadb = MariaDb::start_with(&[], &[], Some(clock)).unwrap();
    for step in [-60_000, 120_000] {
        mariadb.clock().unwrap().step_ms(step).unwrap();
        let began = Instant::now();
        mariadb.ask("SELECT SLEEP(0.5)").unwrap();
        let took = began.elapsed();
        let limits = Duration::from_millis(500)..Duration::from_secs(30);
        assert!(limits.contains(&took), "after a step of {step} ms: {took:?}");
    }
}

#[test]
fn a_server_with_a_certificate_speaks_tls() {
    if !(needs("mariadbd", "mariadb-server") && needs("openssl", "openssl")) {
        return;
    }
    let (key, certificate) = certificate::new();
    let files = [("server.key", key.as_str()), ("server.crt", &certificate)];
    let options = ["--ssl-key=server.key", "--ssl-cert=server.crt"];
    let mut mariadb = MariaDb::start_with(&options, &files, None).unwrap();
    mariadb.restart(Data::Lost).unwrap();
    let output = Command::new("mariadb")
        .args(["--no-defaults", "--user=root", "--host=127.0.0.1", "--ssl"])
        .arg(format!("--port={}", mariadb.address().port()))
        .args(["--batch", "--execute=SHOW STATUS LIKE 'Ssl_cipher'"])
        .output()
        .unwrap();
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(status.contains("TLS_"), "{status} {output:?}");
}
