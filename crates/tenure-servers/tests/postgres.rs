//! A PostgreSQL server can be started, killed, emptied and paused, its clock can be stepped, and a standby follows it.

use std::net::TcpStream;

use tenure_servers::{Data, Postgres, SteppedClock, needs};

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
    let options = ["log_connections = on"];
    let postgres = Postgres::start_with(&options, &[("pg_ident.conf", "# none")], Some(clock)).unwrap();
    assert_eq!(postgres.ask("SHOW log_connections").unwrap(), "on");
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
