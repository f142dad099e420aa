//! One connection: logging in, and statements that run one after the other.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder, Params, Row, from_row_opt};
use tenure_backend::{BackendError, Clock, ServerClock};

use super::error::{failure, refused_login, still_clock, weak_sql_mode};
use super::tls::{self, Tls};
use crate::server::config::{Config, Place};
use crate::server::dial::{Session, look_up, user};
use crate::server::error::{Failure, not_writable, unexpected_reply};
use crate::server::values::{Answer, Cells, Value};

/// The client reads no setting of the server that it is given here, which saves a request at each connect.
const MAX_PACKET: usize = 4 * 1024 * 1024;
const WAIT_TIMEOUT: usize = 8 * 3600;

/// Each statement is a transaction of its own, which sees what is committed, and waits for no other.
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// On MySQL a second is the shortest wait for a row. The other time limit is that of a change to the table's definition. The
/// server may be set to ignore the character set that the client names at its login.
const SETTINGS: &str = "SET NAMES utf8mb4, autocommit = 1, time_zone = '{zone}', lock_wait_timeout = 1,
    innodb_lock_wait_timeout = IF(VERSION() LIKE '%MariaDB%', 0, 1)";

/// What the server says of itself at each connect. An option of the server makes `SYSDATE` return the time at which the
/// statement began, as `NOW` always does. A server that is `super_read_only` is also `read_only`; the replicas of some cloud
/// providers are `innodb_read_only` alone.
const GREETING: &str =
    "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {clock}), SYSDATE(6) = NOW(6), VERSION(), @@sql_mode,
    CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') AND NOT @@global.innodb_read_only";

/// A connection to a server that accepts writes.
///
/// Dropping it while a statement is under way closes the socket. The server may still carry the statement out.
pub(crate) struct MySqlSession {
    pub(super) conn: Conn,
    server_clock: ServerClock,
    clock: Arc<dyn Clock>,
    pub(super) is_mariadb: bool,
}

impl Session for MySqlSession {
    type Tls = Tls;

    fn tls(config: &Config) -> Result<Tls, BackendError> {
        tls::settings(config)
    }

    async fn connect(config: &Config, tls: &Tls, place: &Place) -> Result<Self, BackendError> {
        let settings = match place {
            Place::Host(host) => {
                let found: Vec<IpAddr> = look_up(host).await?.iter().map(SocketAddr::ip).collect();
                let settings = settings(config).await?.ip_or_hostname(host.name());
                settings.tcp_port(host.port_or(3306)).resolved_ips(Some(found))
            }
            Place::Socket(path, _) => settings(config).await?.socket(Some(path.display().to_string())),
        };
        let of_session = SETTINGS.replace("{zone}", &config.time_zone);
        let greeting = GREETING.replace("{clock}", &config.server_clock);
        let greeted = async {
            let mut conn = tls::connect(config, tls, place, settings).await?;
            conn.query_drop(ISOLATION).await?;
            conn.query_drop(of_session).await?;
            let greeting: Option<Row> = conn.query_first(greeting).await?;
            Ok::<_, Error>((conn, greeting))
        };
        let (conn, greeting) = greeted.await.map_err(|error| refused_login(&error, place))?;
        let greeting = greeting.and_then(|row| from_row_opt(row).ok());
        let greeting: (i64, bool, String, String, bool) = greeting.ok_or_else(unexpected_reply)?;
        let (time, stands_still, version, sql_mode, is_writable) = greeting;
        if !is_writable {
            let why = "each is read-only; name the primary server";
            return Err(not_writable(&config.address(), why));
        }
        if !sql_mode.contains("STRICT_TRANS_TABLES") && !sql_mode.contains("STRICT_ALL_TABLES") {
            return Err(weak_sql_mode());
        }
        if stands_still {
            return Err(still_clock());
        }
        Ok(Self {
            server_clock: ServerClock::new(time.unsigned_abs(), config.clock.now()),
            clock: config.clock.clone(),
            is_mariadb: version.contains("MariaDB"),
            conn,
        })
    }

    /// Nothing reads from the connection between two statements. So if the server closes it, only the next statement
    /// notices, and its outcome is unknown.
    fn is_closed(&mut self) -> bool {
        self.conn.is_disconnected()
    }

    fn clock(&self) -> &ServerClock {
        &self.server_clock
    }

    fn learn(&self, time: i64) {
        self.server_clock.learn(time.unsigned_abs(), self.clock.now());
    }

    async fn run(&mut self, sql: &str, params: &[Value<'_>]) -> Result<Answer, Failure> {
        self.exec(sql, params).await.map_err(|error| failure(&error))
    }

    async fn script(&mut self, script: &str) -> Result<(), Failure> {
        let ran = self.conn.query_drop(script).await;
        ran.map_err(|error| failure(&error))
    }
}

impl MySqlSession {
    /// Runs a statement, as [`run`](Session::run) does.
    pub(super) async fn exec(&mut self, sql: &str, params: &[Value<'_>]) -> Result<Answer, Error> {
        let params = params.iter().map(|value| match value {
            Value::Text(text) => (*text).into(),
            Value::Number(number) => (*number).into(),
        });
        let rows: Vec<Row> = self.conn.exec(sql, Params::Positional(params.collect())).await?;
        let cells = |row: Row| Cells(row.unwrap().into_iter().map(cell).collect::<Vec<_>>().into_iter());
        Ok(Answer {
            rows: rows.into_iter().map(cells).collect(),
            changed: self.conn.affected_rows(),
        })
    }
}

/// A value of a row. Our statements answer texts and integers only.
fn cell(value: mysql_async::Value) -> Option<String> {
    use mysql_async::Value::{Bytes, Int, UInt};

    match value {
        Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Int(number) => Some(number.to_string()),
        UInt(number) => Some(number.to_string()),
        _ => None,
    }
}

async fn settings(config: &Config) -> Result<OptsBuilder, BackendError> {
    let credentials = config.login.credentials().await?;
    Ok(OptsBuilder::default()
        .user(Some(user(config, &credentials)?))
        .pass(credentials.secret().map(|password| password.expose()))
        .db_name(config.dbname.as_deref())
        // Otherwise the client would connect again, past a tunnel or a proxy, to the socket that the server names.
        .prefer_socket(false)
        .client_found_rows(false)
        .max_allowed_packet(Some(MAX_PACKET))
        .wait_timeout(Some(WAIT_TIMEOUT))
        .connect_attribute("program_name", config.application_name.as_str()))
}
