//! One MariaDB server for all cases that run at a time, a database for each, and a clock that each case moves.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![allow(dead_code, reason = "no test program uses all of it")]

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use parking_lot::Mutex;
use tenure_backend::{Backend, BackendError, Call, Clock, Instant, LockKey, SystemClock};
use tenure_servers::{Data, MariaDb, Proxy, SteppedClock, Way};
use tenure_sql::server::{Config, StoreUrl, open, schema};
use tenure_testkit::{Link, SlowClient, StoreFailure, Subject};

/// The user of the tests' clients, who has only the documented permissions.
pub(crate) const USER: &str = "tenure";
pub(crate) const PASSWORD: &str = "s3cr3t-and-long";

/// The server's clock plus the time by which the test has moved it. No stored function, because a statement that calls one
/// leaves no `LAST_INSERT_ID`. The table `step` has no row locks, so no session finds a row busy because of it.
const NOW: &str = "(SYSDATE(6) + INTERVAL (SELECT us FROM step) MICROSECOND)";

/// The system's clock plus the time by which the test has moved it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OffsetClock(Arc<Mutex<Duration>>);

impl Clock for OffsetClock {
    fn now(&self) -> Instant {
        SystemClock.now() + *self.0.lock()
    }
}

/// A table of locks in a database of its own.
pub(crate) struct Case {
    pub(crate) server: Arc<Mutex<MariaDb>>,
    pub(crate) database: String,
    pub(crate) layout: &'static str,
    pub(crate) clock: OffsetClock,
    restarts: bool,
}

/// Returns the server that the cases of this program share. It ends with the last case that uses it.
fn shared() -> Arc<Mutex<MariaDb>> {
    static SHARED: Mutex<Weak<Mutex<MariaDb>>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = start(&[], &[]);
        *shared = Arc::downgrade(&server);
        server
    })
}

/// Starts a server with these options and files.
pub(crate) fn start(options: &[&str], files: &[(&str, &str)]) -> Arc<Mutex<MariaDb>> {
    start_with_clock(options, files, None)
}

/// Starts a server whose clock the test steps, if it gives one.
pub(crate) fn start_with_clock(
    options: &[&str],
    files: &[(&str, &str)],
    clock: Option<SteppedClock>,
) -> Arc<Mutex<MariaDb>> {
    let server = MariaDb::start_with(options, files, clock).expect("MariaDB starts");
    let user = format!("CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'");
    server.ask(&user).expect("the server obeys");
    Arc::new(Mutex::new(server))
}

impl Case {
    pub(crate) fn new(layout: &'static str) -> Self {
        Self::on(shared(), layout)
    }

    /// A case on a server of its own, which it may restart.
    pub(crate) fn alone(layout: &'static str) -> Self {
        Case {
            restarts: true,
            ..Self::on(start(&[], &[]), layout)
        }
    }

    pub(crate) fn on(server: Arc<Mutex<MariaDb>>, layout: &'static str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let case = Case {
            server,
            database: format!("case_{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            layout,
            clock: OffsetClock::default(),
            restarts: false,
        };
        let ddl = schema(&case.config()).expect("it is in this build");
        // All in one request: each starts a client of the server, which takes longer than its statements.
        let setup = format!(
            "CREATE DATABASE {database};
             USE {database};
             {ddl}
             CREATE TABLE step (us BIGINT NOT NULL) ENGINE = MyISAM SELECT 0 AS us;
             GRANT SELECT ON step TO {USER};
             {grant}",
            database = case.database,
            grant = case.documented_grant(),
        );
        case.server.lock().ask(&setup).expect("the server obeys");
        case
    }

    /// The statement that grants what the layout's schema documents.
    fn documented_grant(&self) -> String {
        let ddl = schema(&self.config()).expect("it is in this build");
        let (_, grants) = ddl.split_once("GRANT ").expect("the permissions are documented");
        let (grants, _) = grants.split_once(" TO ").expect("a user gets them");
        format!("GRANT {grants} TO {USER};")
    }

    pub(crate) fn table(&self) -> &'static str {
        match self.layout {
            "unique" => "distributed_lock",
            "version" => "resource_lock",
            other => other,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.lock().address()
    }

    pub(crate) fn url(&self, address: SocketAddr) -> String {
        format!(
            "mysql://{USER}:{PASSWORD}@{address}/{}?layout={}",
            self.database, self.layout
        )
    }

    pub(crate) fn config(&self) -> Config {
        self.config_at(self.address())
    }

    /// The settings of a client that reaches the server by this address.
    pub(crate) fn config_at(&self, address: SocketAddr) -> Config {
        config(&self.url(address))
            .clock(Arc::new(self.clock.clone()))
            .server_clock(NOW)
    }

    /// How the superuser connects to the case's database.
    pub(crate) fn superuser_settings(&self) -> OptsBuilder {
        let address = self.address();
        OptsBuilder::default()
            .ip_or_hostname(address.ip().to_string())
            .tcp_port(address.port())
            .prefer_socket(false)
            .user(Some("root"))
            .db_name(Some(&self.database))
    }

    /// A connection of the superuser.
    pub(crate) async fn superuser(&self) -> Conn {
        let opened = Conn::new(self.superuser_settings()).await;
        opened.expect("the server answers")
    }

    /// Runs statements as the superuser, in the case's database.
    pub(crate) fn ask(&self, statements: &str) -> String {
        let statements = format!("USE {};\n{statements}", self.database);
        self.server.lock().ask(&statements).expect("the server obeys")
    }
}

pub(crate) fn config(url: &str) -> Config {
    Config::from_url(&StoreUrl::parse(url).expect("a URL")).expect("it makes sense")
}

impl Subject for Case {
    fn client(&self) -> Call<Arc<dyn Backend>> {
        Call::new(open(self.config()))
    }

    fn passes_without_sleep(&self) -> bool {
        true
    }

    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let step = format!("UPDATE step SET us = us + {}", time.as_micros());
            self.superuser()
                .await
                .query_drop(step)
                .await
                .expect("the server obeys");
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
        let table = self.table();
        match failure {
            Some(StoreFailure::AccessDenied) => drop(self.ask(&format!("REVOKE ALL ON {table} FROM {USER}"))),
            Some(StoreFailure::Broken) => drop(self.ask(&format!("RENAME TABLE {table} TO away"))),
            None => {
                let grant = self.documented_grant();
                self.ask(&format!("RENAME TABLE IF EXISTS away TO {table}; {grant}"));
            }
        }
        Some(Call::ready(Ok(())))
    }

    fn slow_client(&self) -> Option<Call<SlowClient>> {
        let (address, config) = (self.address(), |proxy: &Proxy| self.config_at(proxy.address()));
        let runtime = tokio::runtime::Handle::current();
        let proxy = tokio::task::block_in_place(|| runtime.block_on(Proxy::start(address)));
        let proxy = proxy.expect("a port is free");
        let config = config(&proxy);
        Some(Call::new(async move {
            Ok::<_, BackendError>(SlowClient {
                backend: open(config).await?,
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
    Case::new("unique")
}

pub(crate) async fn version() -> impl Subject {
    Case::new("version")
}

pub(crate) async fn shedlock() -> impl Subject {
    Case::new("shedlock")
}

/// A table whose server the case may restart.
pub(crate) async fn alone() -> impl Subject {
    Case::alone("version")
}
