//! One PostgreSQL server for all cases that run at a time, a schema for each, and a clock that each case moves.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, BackendError, Call, Clock, Instant, LockKey, SystemClock};
use tenure_servers::{Data, Postgres, Proxy, Way};
use tenure_sql::server::{Config, StoreUrl, open, schema};
use tenure_testkit::{Link, SlowClient, StoreFailure, Subject};

/// The role of the tests' clients, which has only the documented permissions.
pub(crate) const ROLE: &str = "tenure";
pub(crate) const PASSWORD: &str = "s3cr3t-and-long";

/// The system's clock plus the time by which the test has moved it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffsetClock(Arc<Mutex<Duration>>);

impl Clock for OffsetClock {
    fn now(&self) -> Instant {
        SystemClock.now() + *self.0.lock()
    }
}

/// A table of locks in a schema of its own.
pub(crate) struct Case {
    pub(crate) server: Arc<Mutex<Postgres>>,
    pub(crate) schema: String,
    pub(crate) layout: &'static str,
    pub(crate) clock: OffsetClock,
    restarts: bool,
}

/// Returns the server that the cases of this program share. It ends with the last case that uses it.
fn shared() -> Arc<Mutex<Postgres>> {
    static SHARED: Mutex<Weak<Mutex<Postgres>>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = start();
        *shared = Arc::downgrade(&server);
        server
    })
}

fn start() -> Arc<Mutex<Postgres>> {
    let server = Postgres::start().expect("PostgreSQL starts");
    let role = format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'");
    server.ask(&role).expect("the server obeys");
    Arc::new(Mutex::new(server))
}

/// Runs statements as the superuser.
pub(crate) async fn script(server: &Mutex<Postgres>, statements: &str) {
    let url = server.lock().url();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
        .await
        .expect("the server answers");
    let connection = tokio::spawn(connection);
    client.batch_execute(statements).await.expect("the server obeys");
    drop(client);
    let _ = connection.await;
}

impl Case {
    pub(crate) async fn new(layout: &'static str) -> Self {
        Self::on(shared(), layout).await
    }

    /// A case on a server of its own, which it may restart.
    pub(crate) async fn alone(layout: &'static str) -> Self {
        Case {
            restarts: true,
            ..Self::on(start(), layout).await
        }
    }

    pub(crate) async fn on(server: Arc<Mutex<Postgres>>, layout: &'static str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let case = Case {
            server,
            schema: format!("case_{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            layout,
            clock: OffsetClock::default(),
            restarts: false,
        };
        let (schema_name, table) = (&case.schema, case.table());
        let ddl = schema(&case.config()).expect("it is in this build");
        let (_, grants) = ddl.split_once("GRANT ").expect("the permissions are documented");
        let (grants, _) = grants.split_once(" ON ").expect("they are for the table");
        let setup = format!(
            "CREATE SCHEMA {schema_name}; {ddl}
             CREATE TABLE {schema_name}.step AS SELECT 0::bigint AS us;
             CREATE FUNCTION {schema_name}.now_() RETURNS timestamptz LANGUAGE sql VOLATILE AS
                 $$ SELECT clock_timestamp() + (SELECT us FROM {schema_name}.step) * interval '1 microsecond' $$;
             GRANT USAGE ON SCHEMA {schema_name} TO {ROLE}; GRANT SELECT ON {schema_name}.step TO {ROLE};
             GRANT {grants} ON {table} TO {ROLE}"
        );
        script(&case.server, &setup).await;
        case
    }

    /// The table with its schema.
    pub(crate) fn table(&self) -> String {
        let name = match self.layout {
            "unique" => "distributed_lock",
            "version" => "resource_lock",
            other => other,
        };
        format!("{}.{name}", self.schema)
    }

    pub(crate) fn url(&self) -> String {
        let (address, layout, schema) = (self.server.lock().address(), self.layout, &self.schema);
        format!("postgres://{ROLE}:{PASSWORD}@{address}/postgres?layout={layout}&schema={schema}")
    }

    pub(crate) fn config(&self) -> Config {
        config(&self.url())
            .clock(Arc::new(self.clock.clone()))
            .server_clock(&format!("{}.now_()", self.schema))
    }

    /// Settings of a client that reads the clocks of the system and of the server.
    pub(crate) fn real_time(&self) -> Config {
        config(&self.url())
    }

    pub(crate) async fn ask(&self, statement: &str) -> String {
        self.server.lock().ask(statement).expect("the server obeys")
    }
}

pub(crate) fn config(url: &str) -> Config {
    Config::from_url(&StoreUrl::parse(url).expect("a URL")).expect("it makes sense")
}

impl Subject for Case {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        let config = self.config();
        Call::new(open(config))
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let step = format!("UPDATE {}.step SET us = us + {}", self.schema, time.as_micros());
            script(&self.server, &step).await;
            *self.clock.0.lock() += time;
        })
    }

    fn client_on(&self, _: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>> {
        None
    }

    fn longest_key(&self) -> usize {
        match self.layout {
            "shedlock" => 64,
            _ => LockKey::MAX_BYTES,
        }
    }

    fn restart(&self) -> Option<Call<()>> {
        let server = self.server.clone();
        self.restarts.then(|| {
            Call::new(async move {
                server
                    .lock()
                    .restart(Data::Kept)
                    .expect("the server starts again");
                Ok(())
            })
        })
    }

    fn set_failure(&self, failure: Option<StoreFailure>) -> Option<Call<()>> {
        let (server, table) = (self.server.clone(), self.table());
        let name = table.rsplit('.').next().unwrap_or_default().to_owned();
        let statement = match failure {
            Some(StoreFailure::AccessDenied) => format!("REVOKE ALL ON {table} FROM {ROLE}"),
            Some(StoreFailure::Broken) => format!("ALTER TABLE {table} RENAME TO away"),
            None => format!(
                "ALTER TABLE IF EXISTS {schema}.away RENAME TO {name};
                 GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {ROLE}",
                schema = self.schema
            ),
        };
        Some(Call::new(async move {
            script(&server, &statement).await;
            Ok(())
        }))
    }

    fn slow_client(&self) -> Option<Call<SlowClient>> {
        let address = self.server.lock().address();
        let (url, schema, clock) = (self.url(), self.schema.clone(), self.clock.clone());
        Some(Call::new(async move {
            let proxy = Proxy::start(address).await.expect("a port is free");
            let url = url.replace(&address.to_string(), &proxy.address().to_string());
            let config = self::config(&url)
                .clock(Arc::new(clock))
                .server_clock(&format!("{schema}.now_()"));
            let backend = open(config).await?;
            Ok::<_, BackendError>(SlowClient {
                backend,
                link: Arc::new(SlowProxy(proxy)),
            })
        }))
    }
}

#[derive(Debug)]
struct SlowProxy(Proxy);

impl Link for SlowProxy {
    fn delay(&self, requests: Duration, answers: Duration) {
        self.0.delay(Way::ToServer, requests);
        self.0.delay(Way::ToClient, answers);
    }
}

pub(crate) async fn unique() -> impl Subject {
    Case::new("unique").await
}

pub(crate) async fn version() -> impl Subject {
    Case::new("version").await
}

pub(crate) async fn shedlock() -> impl Subject {
    Case::new("shedlock").await
}
