//! A MariaDB server can be started, stopped, killed and emptied, and its clock can be stepped.

use std::net::TcpStream;

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
    let files = [("init.sql", "CREATE DATABASE from_file;\n")];
    let mariadb = MariaDb::start_with(&["--init-file=init.sql"], &files, Some(clock)).unwrap();
    assert_eq!(mariadb.ask("SHOW DATABASES LIKE 'from%'").unwrap(), "from_file");
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
