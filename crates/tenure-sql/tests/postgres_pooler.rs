//! Locks through PgBouncer in transaction mode, which gives each transaction any connection of its pool: the contract's
//! conformance suite, and what a pooler could mix up.
#![cfg(feature = "postgres")]

mod postgres_fixture;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use postgres_fixture::*;
use tenure_backend::{Effect, Fault, LockKey, Mode, Phase};
use tenure_servers::{PgBouncer, Postgres};
use tenure_sql::server::open;
use tenure_testkit::Subject;
use tokio_postgres::NoTls;

async fn pooled_unique() -> impl Subject {
    Case::pooled("unique").await
}

async fn pooled_version() -> impl Subject {
    Case::pooled("version").await
}

mod unique {
    use super::pooled_unique;

    tenure_testkit::conformance!(pooled_unique);
}

mod version {
    use super::pooled_version;

    tenure_testkit::conformance!(pooled_version);
}

/// A server of the test's own, and a pooler before it.
fn own_pooler() -> (Arc<Mutex<Postgres>>, Arc<Mutex<PgBouncer>>) {
    let server = start(&[]);
    let pooler = PgBouncer::start(&server.lock()).expect("PgBouncer starts");
    (server, Arc::new(Mutex::new(pooler)))
}

/// Sessions of another program that has the same role, and so shares the pool's connections. Each is in a transaction, so
/// each has a connection of its own.
async fn other_sessions(pooler: &Mutex<PgBouncer>) -> Vec<tokio_postgres::Client> {
    let address = pooler.lock().address();
    let url = format!("postgres://{ROLE}:{PASSWORD}@{address}/postgres?application_name=other");
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it is let in");
        tokio::spawn(connection);
        client.batch_execute("BEGIN").await.expect("it obeys");
        client
    };
    // As many as the pool has connections for a role.
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(connect().await);
    }
    sessions
}

/// R20: what a client sets does not stay with the pooler's connection.
#[tokio::test(flavor = "multi_thread")]
async fn other_clients_of_the_pool_see_none_of_our_settings() {
    let (server, pooler) = own_pooler();
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await.behind(pooler.clone());
        // The defaults that each grant overrides for its transaction.
        case.ask(&format!("ALTER ROLE {ROLE} SET synchronous_commit = off"));
        let fixture = case.fixture().await;
        let client = fixture.client().await;
        let keys: Vec<LockKey> = (0..8).map(|_| fixture.key()).collect();
        let used = keys.iter().map(async |key| {
            let claim = client.holds(key, Mode::Exclusive).await;
            client.stays_alive(&claim, Phase::Granted).await;
            client.finds_busy(key, Mode::Exclusive).await;
            client.evict(&claim, "alice").await.freed_it(&claim);
            client.finds_free(key, Mode::Exclusive).await;
        });
        join_all(used).await;
        for session in other_sessions(&pooler).await {
            let show = "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout'),
                    current_setting('application_name'), (SELECT count(*) FROM pg_prepared_statements),
                    (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())";
            let row = session.query_typed_one(show, &[]).await.expect("it answers");
            let settings: [&str; 3] = [0, 1, 2].map(|column| row.get(column));
            assert_eq!(settings, ["off", "0", "other"], "{layout}");
            let [prepared, locks]: [i64; 2] = [3, 4].map(|column| row.get(column));
            assert_eq!(
                (prepared, locks),
                (0, 0),
                "{layout}: prepared statements and locks"
            );
        }
    }
}

/// R3, R20: no part of a lock lives in a session, so the pooler's connections may come and go.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_survives_a_restart_of_the_pooler() {
    let (server, pooler) = own_pooler();
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout).await.behind(pooler.clone());
        let ([holder, other], key) = case.two().await;
        let held = holder.holds(&key, Mode::Exclusive).await;
        for _ in 0..3 {
            pooler.lock().restart().expect("PgBouncer starts again");
            // As the engine does, `stays_alive` repeats calls that fail with a transient error.
            holder.stays_alive(&held, Phase::Granted).await;
            other.finds_busy(&key, Mode::Exclusive).await;
        }
        holder.release(&held).await.freed_it(&held);
        other.finds_free(&key, Mode::Exclusive).await;
    }
}

/// Only the age of its server processes tells that such a pooler is one.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_prepared_behind_a_pooler_between_two_sockets_of_one_number() {
    let server = start(&[]);
    let pooler = Arc::new(Mutex::new(
        PgBouncer::start_by_socket(&server.lock()).expect("PgBouncer starts"),
    ));
    let (port, real) = (server.lock().address().port(), pooler.lock().address().port());
    let folder = tempfile::tempdir().expect("a folder");
    let socket = pooler.lock().socket_folder().join(format!(".s.PGSQL.{real}"));
    std::os::unix::fs::symlink(socket, folder.path().join(format!(".s.PGSQL.{port}"))).expect("a link");
    for session in other_sessions(&pooler).await {
        session.batch_execute("COMMIT").await.expect("it obeys");
    }
    // sleep: the server's processes must be older than any connection, also if connecting takes long.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for layout in LAYOUTS {
        let case = Case::on(server.clone(), layout)
            .await
            .at(format!("localhost:{port}"));
        let case = case.with(&format!("host={}", folder.path().display()));
        let (client, key) = case.one().await;
        client.finds_free(&key, Mode::Exclusive).await;
        for session in other_sessions(&pooler).await {
            let count = "SELECT count(*) FROM pg_prepared_statements";
            let row = session.query_typed_one(count, &[]).await.expect("it answers");
            assert_eq!(row.get::<_, i64>(0), 0, "{layout}");
            session.batch_execute("COMMIT").await.expect("it obeys");
        }
    }
}

/// A pooler's port may be the client's by chance, so that it is not recognized, and some forget what their clients prepare.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_that_the_server_forgets_is_no_error() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await.with("connections=1");
        let (schema, table) = (&case.schema, case.table());
        let forgetful = format!(
            "CREATE FUNCTION {schema}.forget() RETURNS trigger LANGUAGE plpgsql
                 AS $$ BEGIN DEALLOCATE ALL; RETURN NULL; END $$;
             CREATE TRIGGER forget AFTER UPDATE ON {table} EXECUTE FUNCTION {schema}.forget()"
        );
        script(&case.server, &forgetful).await;
        let (client, key) = case.one().await;
        let held = client.holds(&key, Mode::Exclusive).await;
        for _ in 0..2 {
            client.stays_alive(&held, Phase::Granted).await;
        }
        client.release(&held).await.freed_it(&held);
    }
}

/// PgBouncer has one code for all its refusals, which only its words tell apart.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_the_pooler_refuses_is_denied() {
    let case = Case::pooled("version").await;
    for (login, words) in [
        (format!("{ROLE}:wrong"), "refuses the password"),
        (format!("nobody:{PASSWORD}"), "whether the role exists"),
    ] {
        let error = open(case.config_at(&case.url_of(&login))).await;
        let error = error.expect_err("it is refused");
        assert_error(&error, (Fault::Denied, Effect::None), words);
        assert!(!printed(&error).contains(PASSWORD), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_without_its_server_is_unavailable() {
    let (server, pooler) = own_pooler();
    let case = Case::on(server, "version").await.behind(pooler);
    let (client, key) = case.clone().with("command_timeout=1s").one().await;
    let held = client.holds(&key, Mode::Exclusive).await;
    case.server.lock().process().kill();
    let error = renewal_error(client.backend(), &held).await;
    assert_eq!(error.fault(), Fault::Unavailable, "{error:?}");
}
