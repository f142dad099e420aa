//! PgBouncer lets clients of a PostgreSQL server share connections, and gives one to each transaction.

#![allow(clippy::disallowed_methods, reason = "a test may panic")]

mod session;

use std::io;
use std::process::Command;
use std::time::Duration;

use session::Session;
use tenure_servers::{PgBouncer, Postgres, needs};

/// Starts a server and its PgBouncer; `None` if `TENURE_SKIP` names one of the programs.
fn start() -> Option<(Postgres, PgBouncer)> {
    let needed = needs("postgres", "postgresql") && needs("pgbouncer", "pgbouncer");
    needed.then(|| {
        let postgres = Postgres::start().unwrap();
        let pgbouncer = PgBouncer::start(&postgres).unwrap();
        (postgres, pgbouncer)
    })
}

/// Runs SQL through PgBouncer as the role `ada`.
fn ask(pgbouncer: &PgBouncer, password: &str, sql: &str) -> io::Result<String> {
    let url = format!("postgres://ada:{password}@{}/postgres", pgbouncer.address());
    let output = Command::new("psql").args(["-AtXq", &url, "-c", sql]).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(io::Error::other(text(&output.stderr))),
    }
}

#[test]
fn a_role_logs_in_with_its_own_password() {
    let Some((postgres, pgbouncer)) = start() else {
        return;
    };
    postgres.ask("CREATE ROLE ada LOGIN PASSWORD 's3cr3t'").unwrap();
    assert_eq!(ask(&pgbouncer, "s3cr3t", "SELECT current_user").unwrap(), "ada");
    let error = ask(&pgbouncer, "wrong", "SELECT 1").unwrap_err().to_string();
    assert!(error.contains("authentication failed"), "{error}");
}

#[test]
fn clients_share_connections_in_transaction_mode() {
    let Some((_postgres, mut pgbouncer)) = start() else {
        return;
    };
    let settings = pgbouncer.ask("SHOW CONFIG").unwrap();
    let mode = settings.lines().find(|line| line.starts_with("pool_mode|"));
    assert!(
        mode.is_some_and(|mode| mode.starts_with("pool_mode|transaction|")),
        "{settings}"
    );
    pgbouncer.restart().unwrap();
    let mut clients: Vec<_> = (0..6).map(|_| Session::open(&pgbouncer.url())).collect();
    let mut connections = Vec::new();
    for client in &mut clients {
        client.send("SELECT pg_backend_pid()");
        connections.push(client.row(Duration::from_secs(30)).unwrap());
    }
    connections.sort();
    connections.dedup();
    assert!(connections.len() < clients.len(), "{connections:?}");
}
