//! One PostgreSQL and one MariaDB server for all tests. Each test has a table of locks in a schema or database of its own,
//! and a role that has only the documented permissions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tenure_interop::Lock;
use tenure_servers::{MariaDb, Postgres, needs};
use tokio::runtime::Handle;

use crate::shared::fixture::{LONG, Store};
use crate::shared::subject::Subject;

enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
}

static POSTGRES: Mutex<Option<Arc<Server>>> = Mutex::new(None);
static MARIADB: Mutex<Option<Arc<Server>>> = Mutex::new(None);

/// Stops the servers that run.
pub(crate) fn stop() {
    for server in [&POSTGRES, &MARIADB] {
        drop(server.lock().unwrap().take());
    }
}

pub(crate) fn postgres(subject: &Subject) -> Option<Arc<dyn Store>> {
    let start = || Server::Postgres(Postgres::start().unwrap());
    needs("postgres", "postgresql").then(|| LockTable::create(shared(&POSTGRES, start), subject))
}

pub(crate) fn mariadb(subject: &Subject) -> Option<Arc<dyn Store>> {
    // The zone in which sessions write `NOW()`. ShedLock's times do not depend on it.
    let options = ["--default-time-zone=+02:00"];
    let start = || Server::MariaDb(MariaDb::start_with(&options, &[], None).unwrap());
    needs("mariadbd", "mariadb-server").then(|| LockTable::create(shared(&MARIADB, start), subject))
}

fn shared(server: &Mutex<Option<Arc<Server>>>, start: impl FnOnce() -> Server) -> Arc<Server> {
    let mut server = server.lock().unwrap();
    server.get_or_insert_with(|| Arc::new(start())).clone()
}

impl Server {
    fn ask(&self, sql: &str) -> String {
        match self {
            Server::Postgres(server) => server.ask(sql).unwrap(),
            Server::MariaDb(server) => server.ask(sql).unwrap(),
        }
    }
}

/// A lock table, and a table `counter` with one number.
struct LockTable {
    server: Arc<Server>,
    /// The name of its schema or database, and of the role that may use it.
    name: String,
    table: &'static str,
    columns: &'static [&'static str],
    /// The server's time as the columns have it.
    now: &'static str,
}

impl LockTable {
    fn create(server: Arc<Server>, subject: &Subject) -> Arc<dyn Store> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("case_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let (table, columns): (_, &[_]) = match subject.kind {
            "unique" => (
                "distributed_lock",
                &["lock_key", "lock_value", "expire_time", "create_time"],
            ),
            "version" => (
                "resource_lock",
                &[
                    "resource_key",
                    "version",
                    "locked",
                    "lock_holder",
                    "update_time",
                    "expire_time",
                ],
            ),
            _ => ("shedlock", &["name", "lock_until", "locked_at", "locked_by"]),
        };
        let now = match (&*server, subject.kind) {
            (Server::MariaDb(_), "unique" | "version") => "NOW(6)",
            (Server::MariaDb(_), "client-time") => "UTC_TIMESTAMP(6) + INTERVAL 330 MINUTE",
            (Server::MariaDb(_), _) => "UTC_TIMESTAMP(6)",
            (_, "server-time") => "timezone('UTC', clock_timestamp())",
            (_, "client-time") => "timezone(interval '+05:30', clock_timestamp())",
            _ => "clock_timestamp()",
        };
        let created = LockTable {
            server,
            name,
            table,
            columns,
            now,
        };
        let ddl = tenure::schema(&format!("{}{}", created.url(), subject.options)).unwrap();
        let (_, grants) = ddl.split_once("GRANT ").expect("the permissions are documented");
        let (grants, _) = grants.split_once(" TO ").expect("a role gets them");
        let name = &created.name;
        let begin = match &*created.server {
            Server::Postgres(_) => format!(
                "CREATE ROLE {name} LOGIN PASSWORD 'secret'; CREATE SCHEMA {name}; GRANT USAGE ON SCHEMA {name} TO {name};
                 SET search_path = {name};"
            ),
            Server::MariaDb(_) => {
                format!("CREATE USER {name} IDENTIFIED BY 'secret'; CREATE DATABASE {name}; USE {name};")
            }
        };
        created.server.ask(&format!(
            "{begin}\n{ddl}\nGRANT {grants} TO {name};
             CREATE TABLE counter (value bigint); INSERT INTO counter VALUES (0);
             GRANT SELECT, UPDATE ON counter TO {name};"
        ));
        Arc::new(created)
    }

    /// A column's value as the statement's next field. Times are in seconds from now.
    fn field(&self, column: &str) -> String {
        let now = self.now;
        match (&*self.server, is_time(column)) {
            (Server::Postgres(_), true) => format!("extract(epoch FROM {column} - {now})"),
            (Server::MariaDb(_), true) => format!("TIMESTAMPDIFF(MICROSECOND, {now}, {column}) / 1000000"),
            _ if column == "locked" => "CASE WHEN locked THEN 'yes' ELSE 'no' END".to_owned(),
            _ => column.to_owned(),
        }
    }
}

impl Store for LockTable {
    fn url(&self) -> String {
        let name = &self.name;
        match &*self.server {
            Server::Postgres(server) => format!("postgresql://{name}:secret@{}/postgres", server.address()),
            Server::MariaDb(server) => format!("mariadb://{name}:secret@{}/{name}", server.address()),
        }
    }

    /// A line for each row, with its columns.
    fn data(&self) -> Vec<String> {
        let fields: Vec<_> = self.columns.iter().map(|column| self.field(column)).collect();
        let (name, table, key) = (&self.name, self.table, self.columns[0]);
        let rows = self.server.ask(&format!(
            "SELECT {} FROM {name}.{table} ORDER BY {key}",
            fields.join(", ")
        ));
        let row = |row: &str| {
            let values = row.split(['|', '\t']).zip(self.columns);
            let fields: Vec<_> = values
                .map(|(value, column)| format!("{column}={}", masked(column, value)))
                .collect();
            fields.join(" ")
        };
        rows.lines().map(row).collect()
    }

    fn counter(&self, theirs: &Lock) -> Box<dyn FnMut() + Send> {
        let theirs = theirs.clone();
        Box::new(move || Handle::current().block_on(theirs.raise("counter")).unwrap())
    }

    fn counted(&self) -> u32 {
        let value = self
            .server
            .ask(&format!("SELECT value FROM {}.counter", self.name));
        value.parse().unwrap()
    }
}

fn is_time(column: &str) -> bool {
    ["_until", "_at", "_time"].iter().any(|end| column.ends_with(end))
}

/// Replaces by a word what differs between two runs: names of holders, versions, and times. `lease` is a time that is
/// [`LONG`] from now.
fn masked(column: &str, value: &str) -> String {
    /// In seconds, on a machine that is busy with other tests.
    const TOLERANCE: f64 = 5.0;
    let is_near = |time: f64| (value.parse::<f64>().unwrap() - time).abs() < TOLERANCE;
    match column {
        _ if ["", "NULL"].contains(&value) => "null",
        "locked_by" | "lock_value" | "lock_holder" => "ID",
        "version" => "N",
        _ if is_time(column) && is_near(0.0) => "now",
        _ if is_time(column) && is_near(LONG.as_secs_f64()) => "lease",
        _ => value,
    }
    .to_owned()
}
