//! One PostgreSQL server for all cases that run at a time, a schema for each, and a clock that each case moves.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, BackendError, Call, Clock, Instant, LockKey, SystemClock};
use tenure_servers::{Data, PgBouncer, Postgres, Proxy, Way};
use tenure_sql::server::{Config, StoreUrl, open, schema};
use tenure_testkit::suite::{Fixture, TestClient};
use tenure_testkit::{Link, SlowClient, StoreFailure, Subject};
use tokio_postgres::NoTls;

/// The role of the tests' clients, which has only the documented permissions.
pub(crate) const ROLE: &str = "tenure";
pub(crate) const PASSWORD: &str = "s3cr3t-and-long";

/// All layouts of lease rows.
pub(crate) const LAYOUTS: [&str; 3] = ["unique", "version", "shedlock"];

/// The system's clock plus the time by which the test has moved it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffsetClock(Arc<Mutex<Duration>>);

impl Clock for OffsetClock {
    fn now(&self) -> Instant {
        SystemClock.now() + *self.0.lock()
    }
}

/// A table of locks in a schema of its own, and the settings of its clients.
#[derive(Clone)]
pub(crate) struct Case {
    /// Dropped before the server: otherwise a new case, with a new server, could still find the pooler of the old one.
    pooler: Option<Arc<Mutex<PgBouncer>>>,
    pub(crate) server: Arc<Mutex<Postgres>>,
    pub(crate) schema: String,
    pub(crate) layout: &'static str,
    pub(crate) clock: OffsetClock,
    /// Where clients connect instead of to the server.
    hosts: Option<String>,
    /// Further options of the clients' URL.
    options: String,
    idle: Option<Duration>,
    restarts: bool,
    /// The superuser's session that moves the clock, once a test has moved it: to open one takes the server longer.
    stepping: Arc<tokio::sync::Mutex<Option<tokio_postgres::Client>>>,
}

/// Returns what the cases of this program share. It ends with the last case that uses it.
fn shared<T>(shared: &Mutex<Weak<T>>, start: impl FnOnce() -> Arc<T>) -> Arc<T> {
    let mut shared = shared.lock();
    shared.upgrade().unwrap_or_else(|| {
        let started = start();
        *shared = Arc::downgrade(&started);
        started
    })
}

fn shared_server() -> Arc<Mutex<Postgres>> {
    static SERVER: Mutex<Weak<Mutex<Postgres>>> = Mutex::new(Weak::new());
    shared(&SERVER, || start(&[]))
}

/// Starts a server with lines of `postgresql.conf`, and creates the role of the clients.
pub(crate) fn start(options: &[&str]) -> Arc<Mutex<Postgres>> {
    start_with(options, &[])
}

/// Starts a server with further files in its data folder, too.
pub(crate) fn start_with(options: &[&str], files: &[(&str, &str)]) -> Arc<Mutex<Postgres>> {
    let server = Postgres::start_with(options, files, None).expect("PostgreSQL starts");
    let role = format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'");
    server.ask(&role).expect("the server obeys");
    Arc::new(Mutex::new(server))
}

/// A session of the superuser. Dropping it ends the session.
pub(crate) async fn admin(server: &Mutex<Postgres>) -> tokio_postgres::Client {
    let url = server.lock().url();
    let (client, connection) = tokio_postgres::connect(&url, NoTls)
        .await
        .expect("the server answers");
    tokio::spawn(connection);
    client
}

/// Runs statements as the superuser.
pub(crate) async fn script(server: &Mutex<Postgres>, statements: &str) {
    let admin = admin(server).await;
    admin.batch_execute(statements).await.expect("the server obeys");
}

pub(crate) fn config(url: &str) -> Config {
    try_config(url).expect("it makes sense")
}

pub(crate) fn try_config(url: &str) -> Result<Config, BackendError> {
    Config::from_url(&StoreUrl::parse(url).expect("a URL"))
}

impl Case {
    pub(crate) async fn new(layout: &'static str) -> Self {
        Self::on(shared_server(), layout).await
    }

    /// A case on a server of its own, which it may restart.
    pub(crate) async fn alone(layout: &'static str) -> Self {
        Case {
            restarts: true,
            ..Self::on(start(&[]), layout).await
        }
    }

    /// A case whose clients connect through a PgBouncer, which all cases of the program share.
    pub(crate) async fn pooled(layout: &'static str) -> Self {
        static POOLER: Mutex<Weak<Mutex<PgBouncer>>> = Mutex::new(Weak::new());
        let case = Self::new(layout).await;
        let server = &case.server;
        let pooler = shared(&POOLER, || {
            let pooler = PgBouncer::start(&server.lock()).expect("PgBouncer starts");
            Arc::new(Mutex::new(pooler))
        });
        case.behind(pooler)
    }

    /// The same case, for clients that connect through this PgBouncer.
    pub(crate) fn behind(self, pooler: Arc<Mutex<PgBouncer>>) -> Self {
        let address = pooler.lock().address();
        Case {
            pooler: Some(pooler),
            ..self.at(address)
        }
    }

    pub(crate) async fn on(server: Arc<Mutex<Postgres>>, layout: &'static str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let case = Case {
            pooler: None,
            server,
            schema: format!("case_{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            layout,
            clock: OffsetClock::default(),
            hosts: None,
            options: String::new(),
            idle: None,
            restarts: false,
            stepping: Arc::default(),
        };
        let (schema_name, table) = (&case.schema, case.table());
        let ddl = schema(&case.config()).expect("it is in this build");
        let grants = case.documented_permissions();
        // A client of the textbook that has the case's schema in its path calls the case's `now()`, too.
        let setup = format!(
            "CREATE SCHEMA {schema_name}; {ddl}
             CREATE TABLE {schema_name}.step AS SELECT 0::bigint AS us;
             CREATE FUNCTION {schema_name}.now_() RETURNS timestamptz LANGUAGE sql VOLATILE AS
                 $$ SELECT clock_timestamp() + (SELECT us FROM {schema_name}.step) * interval '1 microsecond' $$;
             CREATE FUNCTION {schema_name}.now() RETURNS timestamptz LANGUAGE sql VOLATILE AS
                 $$ SELECT {schema_name}.now_() $$;
             GRANT USAGE ON SCHEMA {schema_name} TO {ROLE}; GRANT SELECT ON {schema_name}.step TO {ROLE};
             GRANT {grants} ON {table} TO {ROLE}",
            grants = grants.join(", ")
        );
        script(&case.server, &setup).await;
        case
    }

    /// The permissions that `schema` lists for the layout.
    pub(crate) fn documented_permissions(&self) -> Vec<String> {
        let ddl = schema(&self.config()).expect("it is in this build");
        let (_, grants) = ddl.split_once("GRANT ").expect("the permissions are documented");
        let (grants, _) = grants.split_once(" ON ").expect("they are for the table");
        grants.split(", ").map(str::to_owned).collect()
    }

    /// The same case, for clients that connect to these hosts.
    pub(crate) fn at(self, hosts: impl ToString) -> Self {
        let hosts = Some(hosts.to_string());
        Case { hosts, ..self }
    }

    /// The same case, for clients with further options in their URL, such as `connections=2`.
    pub(crate) fn with(mut self, option: &str) -> Self {
        self.options.push('&');
        self.options.push_str(option);
        self
    }

    /// The same case, for clients that close connections which were idle for this time.
    pub(crate) fn with_idle(self, idle: Duration) -> Self {
        let idle = Some(idle);
        Case { idle, ..self }
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

    /// The column with the key.
    pub(crate) fn key_column(&self) -> &'static str {
        match self.layout {
            "unique" => "lock_key",
            "version" => "resource_key",
            _ => "name",
        }
    }

    /// The statement that inserts a free row for a key.
    pub(crate) fn insert_of(&self, key: &LockKey) -> String {
        let table = self.table();
        match self.layout {
            "unique" => format!(
                "INSERT INTO {table} (lock_key, lock_value, expire_time) VALUES ('{key}', 'nobody', '2001-01-01')"
            ),
            "version" => format!("INSERT INTO {table} (resource_key) VALUES ('{key}')"),
            _ => format!(
                "INSERT INTO {table} (name, lock_until, locked_at, locked_by)
                 VALUES ('{key}', '2001-01-01', '2001-01-01', 'nobody')"
            ),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.lock().address()
    }

    fn hosts(&self) -> String {
        self.hosts.clone().unwrap_or_else(|| self.address().to_string())
    }

    pub(crate) fn url(&self) -> String {
        self.url_of(&format!("{ROLE}:{PASSWORD}"))
    }

    /// The URL with another user and password.
    pub(crate) fn url_of(&self, login: &str) -> String {
        let (hosts, layout) = (self.hosts(), self.layout);
        let (schema, options) = (&self.schema, &self.options);
        format!("postgres://{login}@{hosts}/postgres?layout={layout}&schema={schema}{options}")
    }

    pub(crate) fn config(&self) -> Config {
        self.config_at(&self.url())
    }

    /// Settings of a client that reads the clocks of the system and of the server.
    pub(crate) fn real_time(&self) -> Config {
        config(&self.url())
    }

    /// The settings of a client at another URL that has the case's clocks.
    pub(crate) fn config_at(&self, url: &str) -> Config {
        let config = config(url)
            .clock(Arc::new(self.clock.clone()))
            .server_clock(&format!("{}.now_()", self.schema));
        match self.idle {
            Some(idle) => config.idle(idle),
            None => config,
        }
    }

    /// Opens a store.
    pub(crate) async fn open(&self) -> Arc<dyn Backend> {
        open(self.config()).await.expect("the server answers")
    }

    /// The suite's fixture for this case, which makes clients and keys.
    pub(crate) async fn fixture(&self) -> Fixture {
        Fixture::new(self.clone()).await
    }

    /// A client, and a key that it has not used.
    pub(crate) async fn one(&self) -> (TestClient, LockKey) {
        let fixture = self.fixture().await;
        (fixture.client().await, fixture.key())
    }

    /// Two clients, and a key that they have not used.
    pub(crate) async fn two(&self) -> ([TestClient; 2], LockKey) {
        let fixture = self.fixture().await;
        (fixture.two().await, fixture.key())
    }

    /// Runs a statement as the superuser, and returns the rows as text.
    pub(crate) fn ask(&self, statement: &str) -> String {
        self.server.lock().ask(statement).expect("the server obeys")
    }

    /// Runs a statement as the superuser that returns a number.
    pub(crate) fn number(&self, statement: &str) -> i64 {
        let text = self.ask(statement);
        text.parse().unwrap_or_else(|_| panic!("{statement} is {text:?}"))
    }

    /// The columns of a key's row as text, with `|` between them; empty if there is no row.
    pub(crate) fn row(&self, columns: &str, key: &LockKey) -> String {
        let (table, column) = (self.table(), self.key_column());
        self.ask(&format!("SELECT {columns} FROM {table} WHERE {column} = '{key}'"))
    }

    /// Runs statements as the superuser.
    pub(crate) async fn script(&self, statements: &str) {
        script(&self.server, statements).await;
    }

    /// A session of the superuser that has locked a key's row, until it is dropped or rolls back.
    pub(crate) async fn locking(&self, key: &LockKey) -> tokio_postgres::Client {
        let (table, column) = (self.table(), self.key_column());
        let lock = format!("BEGIN; SELECT FROM {table} WHERE {column} = '{key}' FOR UPDATE");
        let admin = admin(&self.server).await;
        admin.batch_execute(&lock).await.expect("the row can be locked");
        admin
    }
}

impl Subject for Case {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        let config = self.config();
        Call::new(open(config))
    }

    fn passes_without_sleep(&self) -> bool {
        true
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let step = format!("UPDATE {}.step SET us = us + {}", self.schema, time.as_micros());
            let mut stepping = self.stepping.lock().await;
            // A server that was started again has ended the session.
            let has_stepped = match &*stepping {
                Some(session) => session.batch_execute(&step).await.is_ok(),
                None => false,
            };
            if !has_stepped {
                let session = admin(&self.server).await;
                session.batch_execute(&step).await.expect("the server obeys");
                *stepping = Some(session);
            }
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
        let address = match &self.pooler {
            Some(pooler) => pooler.lock().address(),
            None => self.address(),
        };
        let case = self.clone();
        Some(Call::new(async move {
            let proxy = Proxy::start(address).await.expect("a port is free");
            let backend = open(case.at(proxy.address()).config()).await?;
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
