//! One connection: logging in, and statements that run one after the other.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder, Params, Row, from_row_opt};
use tenure_backend::{BackendError, Clock, ServerClock};
use tokio::time::{Instant, timeout};

use super::error::{failure, is_unreachable, refused_login, still_clock, weak_sql_mode};
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
        let began = Instant::now();
        let (settings, addresses) = match place {
            Place::Host(host) => {
                let found: Vec<IpAddr> = look_up(host).await?.iter().map(SocketAddr::ip).collect();
                let settings = settings(config).await?.ip_or_hostname(host.name());
                (settings.tcp_port(host.port_or(3306)), found)
            }
            Place::Socket(path, _) => {
                let path = path.display().to_string();
                (settings(config).await?.socket(Some(path)), Vec::new())
            }
        };
        let limit = config.connect_timeout / u32::try_from(config.places.len()).unwrap_or(u32::MAX).max(1);
        let connect = |address: Option<IpAddr>| {
            let addresses = address.map(|address| vec![address]);
            tls::connect(config, tls, place, settings.clone().resolved_ips(addresses))
        };
        let of_session = SETTINGS.replace("{zone}", &config.time_zone);
        let greeting = GREETING.replace("{clock}", &config.server_clock);
        let greeted = async {
            let mut conn = first_to_connect(&addresses, began, limit, connect).await?;
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

/// Connects to one of a host's addresses, or to a socket if there is no address.
///
/// The client crate opens the socket itself, so the attempts cannot overlap. It would try one address after the other until the
/// system gives it up, which takes minutes if the address drops packets. So each one gets an equal part of what is left of
/// `limit`, which the caller enforces.
async fn first_to_connect<T, F: Future<Output = Result<T, Error>>>(
    addresses: &[IpAddr],
    began: Instant,
    limit: Duration,
    connect: impl Fn(Option<IpAddr>) -> F,
) -> Result<T, Error> {
    let (mut failed, mut left) = (None, addresses);
    while let [address, others @ ..] = left
        && !others.is_empty()
    {
        let share = limit.saturating_sub(began.elapsed()) / u32::try_from(left.len()).unwrap_or(u32::MAX);
        match timeout(share, connect(Some(*address))).await {
            Ok(Err(error)) if is_unreachable(&error) => failed = failed.or(Some(error)),
            Ok(ended) => return ended,
            Err(_) => {}
        }
        left = others;
    }
    match connect(left.first().copied()).await {
        // The system puts the addresses that it has no route to last.
        Err(error) if is_unreachable(&error) => Err(failed.unwrap_or(error)),
        ended => ended,
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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::ErrorKind;

    use mysql_async::{DriverError, IoError};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(6);

    const GOOD: &str = "10.0.0.1";
    const SILENT: &str = "10.0.0.2";
    const REFUSING: &str = "10.0.0.3";
    const UNROUTED: &str = "10.0.0.4";
    /// The address of a server that answers with an old way to log in.
    const OLD: &str = "10.0.0.5";

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn failed(kind: ErrorKind) -> Error {
        Error::Io(IoError::Io(kind.into()))
    }

    /// Connects to one of these addresses. Returns the one that accepted, with the seconds that it took.
    async fn connect(addresses: &[&str]) -> Result<(Option<IpAddr>, u64), Error> {
        let addresses: Vec<IpAddr> = addresses.iter().map(|one| address(one)).collect();
        let connect = async |at: Option<IpAddr>| match at {
            Some(at) if at == address(SILENT) => pending().await,
            Some(at) if at == address(REFUSING) => Err(failed(ErrorKind::ConnectionRefused)),
            Some(at) if at == address(UNROUTED) => Err(failed(ErrorKind::NetworkUnreachable)),
            Some(at) if at == address(OLD) => Err(DriverError::MysqlOldPasswordDisabled.into()),
            at => Ok(at),
        };
        let began = Instant::now();
        let connected = timeout(2 * LIMIT, first_to_connect(&addresses, began, LIMIT, connect)).await;
        let connected = connected.expect("it ends within the limit")?;
        Ok((connected, began.elapsed().as_secs()))
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_drops_packets_leaves_time_for_the_next() {
        for (addresses, seconds) in [
            (&[GOOD][..], 0),
            (&[GOOD, SILENT], 0),
            (&[REFUSING, UNROUTED, GOOD], 0),
            (&[SILENT, GOOD], 3),
            (&[SILENT, SILENT, GOOD], 4),
            // The time of the first one is left for the others.
            (&[REFUSING, SILENT, GOOD], 3),
        ] {
            let connected = connect(addresses).await;
            let connected = connected.unwrap_or_else(|error| panic!("{addresses:?}: {error}"));
            assert_eq!(connected, (Some(address(GOOD)), seconds), "{addresses:?}");
        }
        assert_eq!(connect(&[]).await.expect("a socket"), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_error_of_unreachable_addresses_is_returned() {
        for (addresses, words) in [
            (&[REFUSING, UNROUTED][..], "refused"),
            (&[SILENT, REFUSING, UNROUTED], "refused"),
            (&[REFUSING, OLD], "password"),
            // A refused login is not repeated at the next address.
            (&[OLD, GOOD], "password"),
        ] {
            let error = connect(addresses).await.map(drop).expect_err(words);
            assert!(error.to_string().contains(words), "{addresses:?}: {error}");
        }
    }
}
