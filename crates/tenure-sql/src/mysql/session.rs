//! One connection: logging in, and statements that run one after the other.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error, OptsBuilder, Params, from_row_opt};
use tenure_backend::{BackendError, Clock, ServerClock};

use super::error::{failure, refused_login, still_clock, weak_sql_mode};
use super::statements::dialect;
use super::tls::{self, Tls};
use crate::lease_rows::{Row, Statement, Statements, Value, Values};
use crate::server::dial::{Session, look_up, user};
use crate::server::error::{Failure, not_writable, unexpected_reply};
use crate::server::{Config, Place};

/// A connection to a server that accepts writes.
///
/// Dropping it while a statement is under way closes the socket. The server may still carry the statement out.
pub(crate) struct MySqlSession {
    pub(super) conn: Conn,
    pub(super) server_clock: ServerClock,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) is_mariadb: bool,
}

/// The error for a column that may not be NULL. The key of a request that comes too late is NULL.
const KEY_IS_NULL: u16 = 1048;

/// The columns that the statements call `row`.
type Columns = (
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    i64,
);

/// A lock's row, unless it is missing, and the server's time in microseconds since 1970.
type Seen = (Option<Row>, i64);

impl Session for MySqlSession {
    type Tls = Tls;

    fn tls(config: &Config) -> Result<Tls, BackendError> {
        tls::settings(config)
    }

    async fn connect(config: &Config, tls: &Tls, place: &Place) -> Result<Self, BackendError> {
        connect(config, tls, place).await
    }

    /// Nothing reads from the connection between two statements. So if the server closes it, only the next statement
    /// notices, and its outcome is unknown.
    fn is_closed(&self) -> bool {
        self.conn.is_disconnected()
    }

    fn clock(&self) -> &ServerClock {
        &self.server_clock
    }

    async fn script(&mut self, script: &str) -> Result<(), Failure> {
        let ran = self.conn.query_drop(script).await;
        ran.map_err(|error| failure(&error))
    }
}

impl MySqlSession {
    /// Runs a query, and decodes the rows that it returns.
    pub(super) async fn ask<T: FromRow>(
        &mut self,
        sql: &str,
        params: Vec<mysql_async::Value>,
    ) -> Result<Vec<T>, Failure> {
        let rows = self.conn.exec(sql, Params::Positional(params)).await;
        decode(rows.map_err(|error| failure(&error))?)
    }

    async fn exec(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<mysql_async::Row>, Error> {
        let params = statement.bind(values).into_iter().map(|value| match value {
            Value::Text(text) => text.into(),
            Value::Number(number) => number.into(),
        });
        self.conn
            .exec(&*statement.sql, Params::Positional(params.collect()))
            .await
    }

    /// Decodes locks' rows, and learns the server's time from them.
    fn seen(&self, rows: Result<Vec<mysql_async::Row>, Error>) -> Result<Vec<Seen>, Failure> {
        let rows = decode(rows.map_err(|error| failure(&error))?)?;
        let rows: Vec<Seen> = rows.into_iter().map(seen).collect();
        if let Some((_, now)) = rows.last() {
            self.server_clock.learn(now.unsigned_abs(), self.clock.now());
        }
        Ok(rows)
    }

    pub(super) async fn rows(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<Seen>, Failure> {
        let rows = self.exec(statement, values).await;
        self.seen(rows)
    }

    /// Reads the row of `values.key`.
    pub(super) async fn look(
        &mut self,
        statements: &Statements,
        values: &Values<'_>,
    ) -> Result<Seen, Failure> {
        let seen = self.rows(&statements.look, values).await?.pop();
        Ok(seen.ok_or_else(unexpected_reply)?)
    }

    /// Inserts the row of `values.key`, if the request does not come too late. Returns what MariaDB returns of the row; MySQL
    /// returns nothing.
    pub(super) async fn insert(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Option<Seen>, Failure> {
        match self.exec(statement, values).await {
            Err(Error::Server(refusal)) if refusal.code == KEY_IS_NULL => Ok(None),
            inserted => Ok(self.seen(inserted)?.pop()),
        }
    }
}

fn decode<T: FromRow>(rows: Vec<mysql_async::Row>) -> Result<Vec<T>, Failure> {
    let rows = rows.into_iter().map(from_row_opt);
    Ok(rows.collect::<Result<_, _>>().map_err(|_| unexpected_reply())?)
}

fn seen((key, holder, token, is_held, left, now): Columns) -> Seen {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let row = key.map(|key| Row {
        key: text(key),
        holder: holder.map(text),
        token,
        is_held: is_held.is_some_and(|is_held| is_held != 0),
        left: left.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or_default())),
    });
    (row, now)
}

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
const GREETING: &str = "SELECT {now_us}, SYSDATE(6) = NOW(6), VERSION(), @@sql_mode,
    CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') AND NOT @@global.innodb_read_only";

/// Connects, sets the session up, and asks the server what it is.
async fn connect(config: &Config, tls: &Tls, place: &Place) -> Result<MySqlSession, BackendError> {
    let settings = match place {
        Place::Host(host) => {
            let found: Vec<IpAddr> = look_up(host).await?.iter().map(SocketAddr::ip).collect();
            let settings = settings(config).await?.ip_or_hostname(host.name());
            settings.tcp_port(host.port_or(3306)).resolved_ips(Some(found))
        }
        Place::Socket(path, _) => settings(config).await?.socket(Some(path.display().to_string())),
    };
    let dialect = dialect(config);
    let greeted = async {
        let mut conn = match place {
            Place::Host(_) => tls::connect(config, tls, settings).await?,
            Place::Socket(..) => Conn::new(settings).await?,
        };
        conn.query_drop(ISOLATION).await?;
        conn.query_drop(dialect.expand(SETTINGS)).await?;
        let greeting = conn
            .query_first::<mysql_async::Row, _>(dialect.expand(GREETING))
            .await?;
        Ok::<_, Error>((conn, greeting))
    };
    let greeted = greeted
        .await
        .map_err(|error| refused_login(&error, &place.to_string()));
    let (conn, greeting) = greeted?;
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
    Ok(MySqlSession {
        server_clock: ServerClock::new(time.unsigned_abs(), config.clock.now()),
        clock: config.clock.clone(),
        is_mariadb: version.contains("MariaDB"),
        conn,
    })
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
