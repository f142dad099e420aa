//! Connecting, logging in, and setting the session up.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

#[cfg(feature = "tls")]
use mysql_async::SslOpts;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder, from_row_opt};
use tenure_backend::{BackendError, ServerClock};
use tenure_endpoint::Host;

use super::error::{refused_login, still_clock, weak_sql_mode};
use super::session::MySqlSession;
use super::statements::{now, now_us};
#[cfg(feature = "tls")]
use super::tls;
use crate::server::Config;
use crate::server::dial::{Dial, look_up, user};
use crate::server::error::{not_writable, unexpected_reply};
#[cfg(feature = "tls")]
use crate::server::{Place, TlsMode};

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

/// Opens connections with the settings of a store.
pub(crate) struct Dialer {
    config: Config,
    #[cfg(feature = "tls")]
    tls: Option<SslOpts>,
}

impl Dialer {
    /// Reads the certificates if TLS may be used; fails if they are invalid.
    pub(crate) fn new(config: &Config) -> Result<Self, BackendError> {
        #[cfg(not(feature = "tls"))]
        crate::server::tls::refuse(config)?;
        Ok(Dialer {
            #[cfg(feature = "tls")]
            tls: tls::settings(config)?,
            config: config.clone(),
        })
    }

    async fn settings(&self) -> Result<OptsBuilder, BackendError> {
        let config = &self.config;
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

    /// Connects, sets the session up, and asks the server what it is.
    async fn log_in(&self, settings: OptsBuilder, address: &str) -> Result<MySqlSession, BackendError> {
        let config = &self.config;
        let zone = config.time_zone.as_deref().unwrap_or("+00:00");
        let greeting = GREETING.replace("{now_us}", &now_us(&now(config)));
        let greeted = async {
            let (mut conn, is_encrypted) = self.connect(settings).await?;
            conn.query_drop(ISOLATION).await?;
            conn.query_drop(SETTINGS.replace("{zone}", zone)).await?;
            let greeting = conn.query_first::<mysql_async::Row, _>(greeting).await?;
            Ok((conn, is_encrypted, greeting))
        };
        let greeted = greeted.await.map_err(|error| refused_login(&error, address));
        let (conn, is_encrypted, greeting) = greeted?;
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
            is_encrypted,
            conn,
        })
    }

    /// Returns whether the connection is encrypted, too.
    #[cfg(feature = "tls")]
    async fn connect(&self, settings: OptsBuilder) -> Result<(Conn, bool), Error> {
        use mysql_async::DriverError::NoClientSslFlagFromServer;

        let tls = self
            .tls
            .as_ref()
            .filter(|_| matches!(self.config.place, Place::Hosts(_)));
        let Some(tls) = tls else {
            return Ok((Conn::new(settings).await?, false));
        };
        let opened = match Conn::new(settings.clone().ssl_opts(tls.clone())).await {
            Err(Error::Driver(NoClientSslFlagFromServer)) if self.config.tls == TlsMode::Prefer => {
                return Ok((Conn::new(settings).await?, false));
            }
            Err(error) => match tls::other_name(&error, &self.config) {
                Some(name) => {
                    let tls = tls.clone().with_danger_tls_hostname_override(Some(name));
                    Conn::new(settings.ssl_opts(tls)).await
                }
                None => Err(error),
            },
            opened => opened,
        };
        Ok((opened?, true))
    }

    #[cfg(not(feature = "tls"))]
    async fn connect(&self, settings: OptsBuilder) -> Result<(Conn, bool), Error> {
        Ok((Conn::new(settings).await?, false))
    }
}

impl Dial for Dialer {
    type Session = MySqlSession;

    fn config(&self) -> &Config {
        &self.config
    }

    async fn host(&self, host: &Host) -> Result<MySqlSession, BackendError> {
        let found: Vec<IpAddr> = look_up(host).await?.iter().map(SocketAddr::ip).collect();
        let settings = self.settings().await?.ip_or_hostname(host.name());
        let settings = settings.tcp_port(host.port_or(3306)).resolved_ips(Some(found));
        self.log_in(settings, &host.to_string()).await
    }

    async fn socket(&self, path: &Path, _: u16) -> Result<MySqlSession, BackendError> {
        let address = path.display().to_string();
        let settings = self.settings().await?.socket(Some(address.as_str()));
        self.log_in(settings, &address).await
    }
}
