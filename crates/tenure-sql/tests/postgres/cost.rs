//! What locks cost a PostgreSQL server: statements, log records, connections, and waits for rows.

use std::sync::Arc;
use std::time::Duration;

use crate::postgres_fixture::*;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tenure_backend::{AcquireReply, Effect, Fault, LockKey, Mode, Phase};
use tenure_servers::Postgres;

/// A server that counts statements and, without requests, adds nothing to its log.
fn quiet_server() -> Arc<Mutex<Postgres>> {
    start(&[
        "shared_preload_libraries = 'pg_stat_statements'",
        "wal_level = minimal",
        "max_wal_senders = 0",
        "autovacuum = off",
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn locking_and_unlocking_are_one_statement_each() {
    let server = quiet_server();
    script(&server, "CREATE EXTENSION pg_stat_statements").await;
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        let (client, key) = case.one().await;
        let lock_and_unlock = async |key: &LockKey| {
            let claim = client.holds(key, Mode::Exclusive).await;
            client.release(&claim).await.freed_it(&claim);
        };
        // The first lock of a connection prepares the statements.
        lock_and_unlock(&key).await;
        for key in [key, LockKey::new("another").expect("a key")] {
            case.ask("SELECT pg_stat_statements_reset()");
            lock_and_unlock(&key).await;
            let count = format!("SELECT sum(calls) FROM pg_stat_statements WHERE userid = '{ROLE}'::regrole");
            assert_eq!(case.number(&count), 2, "{layout}: {key}");
        }
    }
}

/// Even a log record of a few bytes costs each refused try a flush of the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_try_writes_nothing() {
    let server = quiet_server();
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await;
        let ([holder, other], key) = case.two().await;
        let held = holder.holds(&key, Mode::Exclusive).await;
        let refused = async || {
            let claim = other.claim(&key, Mode::Exclusive);
            other.waits(&claim).await;
            other.withdraw(&claim).await.freed_nothing();
        };
        refused().await;
        // The end of the log, and the number of the next transaction that writes.
        let position =
            || case.ask("SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())");
        let before = position();
        for _ in 0..200 {
            refused().await;
        }
        assert_eq!(position(), before, "{layout}");
        holder.release(&held).await.freed_it(&held);
        assert_ne!(position(), before, "{layout}: a release writes");
    }
}

/// The IDs of the server's processes for this client.
fn connections(case: &Case, name: &str) -> Vec<String> {
    let pids = case.ask(&format!(
        "SELECT pid FROM pg_stat_activity WHERE application_name = '{name}' ORDER BY 1"
    ));
    pids.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_one_lock_has_one_connection() {
    let case = Case::new("version").await.with("application_name=frugal");
    let case = case.with("connections=3");
    let fixture = case.fixture().await;
    let (client, key) = (fixture.client().await, fixture.key());
    // The connections of the fixture's first client are closed.
    wait_until("one connection is left", || {
        connections(&case, "frugal").len() == 1
    })
    .await;
    let held = client.holds(&key, Mode::Exclusive).await;
    client.stays_alive(&held, Phase::Granted).await;
    assert_eq!(connections(&case, "frugal").len(), 1);
    let keys: Vec<LockKey> = (0..8).map(|_| fixture.key()).collect();
    let holds = keys.iter().map(|key| client.holds(key, Mode::Exclusive));
    assert_eq!(join_all(holds).await.len(), 8);
    let used = connections(&case, "frugal").len();
    assert!((1..=3).contains(&used), "{used} connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_are_closed_except_one_of_a_holder() {
    const IDLE: Duration = Duration::from_millis(200);
    let case = Case::new("version").await.with("application_name=idle");
    let fixture = case.clone().with_idle(IDLE).fixture().await;
    let client = fixture.client().await;
    let keys: Vec<LockKey> = (0..8).map(|_| fixture.key()).collect();
    let mut held = join_all(keys.iter().map(|key| client.holds(key, Mode::Exclusive))).await;
    let last = held.pop().expect("eight locks");
    wait_until("one connection is left", || connections(&case, "idle").len() == 1).await;
    let remaining = connections(&case, "idle");
    // sleep: no event says that a connection stays open.
    tokio::time::sleep(IDLE * 5).await;
    client.stays_alive(&last, Phase::Granted).await;
    assert_eq!(connections(&case, "idle"), remaining);
    for claim in held {
        client.release(&claim).await.freed_it(&claim);
    }
    wait_until("one connection is left", || connections(&case, "idle").len() == 1).await;
    client.release(&last).await.freed_it(&last);
    wait_until("no connection is left", || connections(&case, "idle").is_empty()).await;
    client.finds_free(&keys[0], Mode::Exclusive).await;
}

/// Claims that are lost count as held no longer, whichever call finds them so.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_lock_keeps_no_connection_open() {
    let case = Case::new("version").await.with("application_name=lost");
    let case = case.with_idle(Duration::from_millis(200));
    let fixture = case.fixture().await;
    for is_polled in [true, false] {
        let (client, key) = (fixture.client().await, fixture.key());
        let claim = client.short_lease(&key, Mode::Exclusive);
        let grant = client.granted(&claim).await;
        fixture.pass(grant.lease + fixture.grace()).await;
        if is_polled {
            client.has_ended(&claim).await;
        } else {
            client.is_gone(&claim, Phase::Granted).await;
        }
        wait_until("no connection is left", || connections(&case, "lost").is_empty()).await;
    }
}

/// Another session keeps the key's row locked throughout. A call that waited for it would fail after 3 s, because the
/// store gives up such statements.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_delays_no_call() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let fixture = case.fixture().await;
        let ([client, other], key) = (fixture.two().await, fixture.key());
        let held = client.holds(&key, Mode::Exclusive).await;
        let locking = case.locking(&key).await;
        let renewed = renewal_error(client.backend(), &held).await;
        assert_error(&renewed, (Fault::Unavailable, Effect::None), "row locked");
        assert_waits(&acquire(other.backend(), &other.claim(&key, Mode::Exclusive)).await);
        let elsewhere: Vec<LockKey> = (0..20).map(|_| fixture.key()).collect();
        let works = elsewhere.iter().map(async |key| {
            let claim = client.holds(key, Mode::Exclusive).await;
            client.stays_alive(&claim, Phase::Granted).await;
            client.release(&claim).await.freed_it(&claim);
        });
        let renewals = async {
            for _ in 0..20 {
                let error = renewal_error(client.backend(), &held).await;
                assert_error(&error, (Fault::Unavailable, Effect::None), "row locked");
            }
        };
        tokio::join!(join_all(works), renewals);
        locking.batch_execute("ROLLBACK").await.expect("it obeys");
        client.stays_alive(&held, Phase::Granted).await;
        client.release(&held).await.freed_it(&held);
    }
}

/// A free row is locked as well, and so is a row that another session has inserted and not yet committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_free_row_counts_as_held() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let fixture = case.fixture().await;
        let ([client, other], key) = (fixture.two().await, fixture.key());
        let past = client.short_lease(&key, Mode::Exclusive);
        let grant = client.granted(&past).await;
        fixture.pass(grant.lease + fixture.grace()).await;
        let locking = case.locking(&key).await;
        let claim = other.claim(&key, Mode::Exclusive);
        assert_waits(&acquire(other.backend(), &claim).await);
        locking.batch_execute("ROLLBACK").await.expect("it obeys");
        other.granted(&claim).await;

        let missing = fixture.key();
        let insert = case.insert_of(&missing);
        let begin = format!("BEGIN; {insert}");
        locking.batch_execute(&begin).await.expect("it obeys");
        let claim = other.claim(&missing, Mode::Exclusive);
        let reply = acquire(other.backend(), &claim).await;
        assert!(
            matches!(reply, Ok(AcquireReply::Waiting { .. })),
            "{layout}: {reply:?}"
        );
        locking.batch_execute("ROLLBACK").await.expect("it obeys");
        other.granted(&claim).await;
    }
}
