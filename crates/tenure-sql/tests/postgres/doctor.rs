//! What an examination finds of a PostgreSQL server, its role, its table and the connection: each finding if its cause is
//! there, and only then.

use std::sync::Arc;

use crate::postgres_fixture::*;
use parking_lot::Mutex;
use tenure_backend::{Fault, Finding, Severity};
use tenure_servers::{Certificates, PgBouncer, Postgres, SteppedClock};

/// A server without weaknesses.
fn sound_server(options: &[&str]) -> Arc<Mutex<Postgres>> {
    start(&[&["fsync = on"], options].concat())
}

/// What a new client of the case finds.
async fn findings(case: &Case) -> Vec<Finding> {
    examine(&case.open().await).await
}

/// Asserts that a new client finds this alone.
async fn finds_only(case: &Case, words: &str, severity: Severity) {
    let found = findings(case).await;
    assert_finding(&found, words, severity);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_server_has_no_findings() {
    let server = sound_server(&[]);
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        assert_eq!(findings(&case).await, []);
        let (folder, port) = {
            let server = server.lock();
            (
                server.socket_folder().display().to_string(),
                server.address().port(),
            )
        };
        let by_socket = case
            .at(format!("localhost:{port}"))
            .with(&format!("host={folder}"));
        assert_eq!(findings(&by_socket).await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_lose_writes_is_found() {
    let stable = "does not write to stable storage";
    for option in ["fsync = off", "full_page_writes = off"] {
        let case = Case::on(sound_server(&[option]), "version").await;
        finds_only(&case, stable, Severity::Danger).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_a_crash_empties_is_found() {
    let server = sound_server(&[]);
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        let table = case.table();
        case.script(&format!("ALTER TABLE {table} SET UNLOGGED")).await;
        finds_only(
            &case,
            &format!("the table `{table}` is unlogged"),
            Severity::Danger,
        )
        .await;
        case.script(&format!("ALTER TABLE {table} SET LOGGED")).await;
        assert_eq!(findings(&case).await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_the_role_are_found() {
    let case = Case::on(sound_server(&[]), "version").await;
    let set = |setting: &str| case.ask(&format!("ALTER ROLE {ROLE} SET {setting}"));
    let reset = || case.ask(&format!("ALTER ROLE {ROLE} RESET ALL"));
    set("synchronous_commit = off");
    finds_only(&case, "`synchronous_commit` is off", Severity::Note).await;
    reset();
    for isolation in ["repeatable read", "serializable"] {
        set(&format!("default_transaction_isolation = '{isolation}'"));
        finds_only(&case, isolation, Severity::Warning).await;
    }
    reset();
    assert_eq!(findings(&case).await, []);
    // A new connection would be refused.
    let store = case.open().await;
    case.ask("ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()");
    let found = soon(async {
        loop {
            // The server's process for the client reads the setting before one of the next statements.
            let found = examine(&store).await;
            if !found.is_empty() {
                break found;
            }
        }
    })
    .await;
    assert_finding(&found, "read-only by default", Severity::Danger);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_permission_is_found() {
    let server = sound_server(&[]);
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        let table = case.table();
        for permission in case.documented_permissions() {
            case.ask(&format!("REVOKE {permission} ON {table} FROM {ROLE}"));
            finds_only(
                &case,
                &format!("lacks a permission on `{table}`"),
                Severity::Danger,
            )
            .await;
            case.ask(&format!("GRANT {permission} ON {table} TO {ROLE}"));
        }
        case.ask(&format!("REVOKE DELETE ON {table} FROM {ROLE}"));
        assert_eq!(
            findings(&case).await.is_empty(),
            layout != "unique",
            "only one layout deletes rows"
        );
    }
}

/// The role of a client may not read the state of other sessions, which is no reason to overlook them.
#[tokio::test(flavor = "multi_thread")]
async fn standbys_that_may_lack_locks_are_found() {
    let server = sound_server(&[]);
    let case = Case::on(server.clone(), "version").await;
    let mut standby = server.lock().standby(&[]).expect("a standby starts");
    for is_monitor in [false, true] {
        if is_monitor {
            case.ask(&format!("GRANT pg_monitor TO {ROLE}"));
        }
        finds_only(&case, "are not synchronous", Severity::Warning).await;
    }
    case.ask("ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()");
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    wait_until("the standby is synchronous", || case.number(synchronous) == 1).await;
    assert_eq!(findings(&case).await, []);
    for without in ["off", "local"] {
        let case = case
            .clone()
            .with(&format!("options=-c%20synchronous_commit%3D{without}"));
        assert_finding(&findings(&case).await, "are not synchronous", Severity::Warning);
    }
    standby.process().pause();
    // 20 MB of the log, which does not wait for the standby.
    let message =
        "SELECT pg_logical_emit_message(false, 'test', repeat('x', 1000000)) FROM generate_series(1, 20)";
    case.ask(&format!(
        "SET synchronous_commit = local; SELECT count(*) FROM ({message}) m"
    ));
    finds_only(&case, "MiB behind", Severity::Warning).await;
    standby.process().resume();
    let behind = "SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) FROM pg_stat_replication";
    wait_until("the standby has caught up", || case.ask(behind) == "0").await;
    assert_eq!(findings(&case).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_from_another_server_are_found() {
    let publisher = start(&["wal_level = logical"]);
    script(&publisher, "CREATE PUBLICATION all_tables FOR ALL TABLES").await;
    let case = Case::on(sound_server(&[]), "version").await;
    assert_eq!(findings(&case).await, []);
    let port = publisher.lock().address().port();
    case.ask(&format!(
        "CREATE SUBSCRIPTION other CONNECTION 'host=127.0.0.1 port={port} user=postgres dbname=postgres' PUBLICATION all_tables"
    ));
    let works = "SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL";
    wait_until("the subscription works", || case.number(works) > 0).await;
    finds_only(&case, "takes writes from another one", Severity::Warning).await;
}

/// The sessions of other roles count, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_many_connections_is_found() {
    let case = Case::on(sound_server(&["max_connections = 20"]), "version").await;
    assert_eq!(findings(&case).await, []);
    let store = case.open().await;
    let mut sessions = Vec::new();
    for _ in 0..18 {
        sessions.push(admin(&case.server).await);
    }
    let found = examine(&store).await;
    assert_finding(&found, "19 of 20 connections are in use", Severity::Warning);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_differs_is_found() {
    let clock = SteppedClock::new().expect("a clock that steps can be made");
    let server = Postgres::start_with(&["fsync = on"], &[], Some(clock)).expect("PostgreSQL starts");
    let server = Arc::new(Mutex::new(server));
    script(
        &server,
        &format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'"),
    )
    .await;
    let case = Case::on(server, "version").await;
    assert_eq!(findings(&case).await, []);
    let step = |milliseconds| {
        let server = case.server.lock();
        let clock = server.clock().expect("it steps");
        clock.step_ms(milliseconds).expect("the clock steps");
    };
    step(99_000);
    finds_only(
        &case,
        "the server's clock differs from this machine's by 9",
        Severity::Note,
    )
    .await;
    step(-198_000);
    finds_only(
        &case,
        "the server's clock differs from this machine's by ",
        Severity::Note,
    )
    .await;
}

/// ShedLock's columns have no zone, so in spring an hour of each lease is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_zone_whose_clocks_are_set_is_found() {
    let case = Case::on(sound_server(&[]), "shedlock").await;
    for zone in ["UTC", "Asia/Tokyo", "%2B02:00", "-03:30"] {
        let fixed = case.clone().with(&format!("time_zone={zone}"));
        assert_eq!(findings(&fixed).await, [], "{zone}");
    }
    for zone in ["Europe/Berlin", "Australia/Sydney"] {
        let set = case.clone().with(&format!("time_zone={zone}"));
        finds_only(
            &set,
            &format!("the time zone `{zone}` are set twice a year"),
            Severity::Danger,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_found() {
    let case = Case::on(sound_server(&[]), "version").await;
    let pooler = PgBouncer::start(&case.server.lock()).expect("PgBouncer starts");
    let pooled = case.clone().behind(Arc::new(Mutex::new(pooler)));
    finds_only(&pooled, "a pooler or a proxy stands between", Severity::Note).await;
    assert_eq!(findings(&case).await, []);
}

/// Only a connection that leaves the machine needs encryption. The client knows the usual names of its own machine.
#[tokio::test(flavor = "multi_thread")]
async fn an_unencrypted_connection_to_another_machine_is_found() {
    let words = "the connection is not encrypted";
    let certificates = Certificates::new(ROLE);
    let [key, certificate] = ["server.key", "server.pem"].map(|name| certificates.text(name));
    let files = [("server.key", key.as_str()), ("server.crt", &certificate)];
    let addresses = "listen_addresses = '127.0.0.1,127.0.0.2'";
    let logins = (
        "pg_hba.conf",
        "local all postgres trust\nhost all postgres samehost trust\nhost all all samehost scram-sha-256\n",
    );
    for options in [
        &[addresses, "fsync = on"][..],
        &[addresses, "fsync = on", "ssl = on"],
    ] {
        let has_tls = options.len() == 3;
        let files = [&files[..], &[logins]].concat();
        let case = Case::on(start_with(options, &files), "version").await;
        assert_eq!(findings(&case).await, [], "this machine");
        let port = case.address().port();
        let case = case.at(format!("127.0.0.2:{port}"));
        match has_tls {
            true => assert_eq!(findings(&case).await, []),
            false => finds_only(&case, words, Severity::Warning).await,
        }
        // A user who turns it off knows it.
        assert_eq!(findings(&case.with("sslmode=disable")).await, []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_examination_fails_if_the_table_is_gone() {
    let case = Case::new("version").await;
    let store = case.open().await;
    case.script(&format!("DROP TABLE {}", case.table())).await;
    let error = store.examine().await.expect_err("there is no table");
    assert_eq!(error.fault(), Fault::Store, "{error:?}");
}
