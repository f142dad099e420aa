//! One connection: logging in, and statements that run one after the other.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt;
use tenure_backend::{BackendError, Clock, ServerClock};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, RowStream};
#[cfg(feature = "tls")]
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;

use super::error::{failure, is_of_commit, refused_login, uncertain};
use super::statements::dialect;
use crate::lease_rows::{Statement, Value, Values};
use crate::server::dial::{Session, look_up, user};
use crate::server::error::{Failure, not_writable, unreachable};
use crate::server::{Config, Place, TlsMode, tls};

#[cfg(feature = "tls")]
pub(super) type Tls = MakeRustlsConnect;
#[cfg(not(feature = "tls"))]
pub(super) type Tls = tokio_postgres::NoTls;

/// A connection to a server that accepts writes.
pub(crate) struct PgSession {
    /// Moves bytes between the client and the socket. It is dropped first, which closes the socket at once, even if a
    /// statement is under way. No statement is ever cancelled: a commit that waits for a standby would then report success.
    pub(super) _driver: AbortOnDropHandle<()>,
    pub(super) client: Client,
    pub(super) server_clock: ServerClock,
    pub(super) clock: Arc<dyn Clock>,
    /// A pooler stands between, which may send each statement to another server process: nothing is prepared.
    pub(super) is_pooled: bool,
    pub(super) prepared: HashMap<String, tokio_postgres::Statement>,
    /// The server has reported that a write may not be on its standbys.
    pub(super) warned: Arc<AtomicBool>,
}

impl Session for PgSession {
    type Tls = Tls;

    #[cfg(feature = "tls")]
    fn tls(config: &Config) -> Result<Tls, BackendError> {
        let read = tls::client_config(config)?;
        Ok(MakeRustlsConnect::new(Arc::unwrap_or_clone(read)))
    }

    #[cfg(not(feature = "tls"))]
    fn tls(config: &Config) -> Result<Tls, BackendError> {
        tls::refuse(config)?;
        Ok(tokio_postgres::NoTls)
    }

    async fn connect(config: &Config, tls: &Tls, place: &Place) -> Result<Self, BackendError> {
        connect(config, tls, place).await
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn clock(&self) -> &ServerClock {
        &self.server_clock
    }

    async fn script(&mut self, script: &str) -> Result<(), Failure> {
        let ran = self.client.batch_execute(script).await;
        ran.map_err(|error| failure(&error))
    }
}

impl PgSession {
    async fn query(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<RowStream, tokio_postgres::Error> {
        let values = statement.bind(values);
        if self.is_pooled {
            let typed = values.iter().map(|value| match value {
                Value::Text(_) => (as_sql(value), Type::TEXT),
                Value::Number(_) => (as_sql(value), Type::INT8),
            });
            return self.client.query_typed_raw(&statement.sql, typed).await;
        }
        if !self.prepared.contains_key(&statement.sql) {
            let prepared = self.client.prepare(&statement.sql).await?;
            self.prepared.insert(statement.sql.clone(), prepared);
        }
        let prepared = &self.prepared[&statement.sql];
        self.client.query_raw(prepared, values.iter().map(as_sql)).await
    }

    /// Runs a statement. Returns the rows of its answer as the server sent them, and the number of changed ones.
    pub(super) async fn raw(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<(Vec<tokio_postgres::Row>, u64), Failure> {
        let answered = async {
            let mut stream = pin!(self.query(statement, values).await?);
            let mut rows = Vec::new();
            while let Some(row) = stream.as_mut().try_next().await? {
                rows.push(row);
            }
            Ok((rows, stream.rows_affected().unwrap_or_default()))
        };
        let answered = answered.await.map_err(|error| failure(&error))?;
        match self.warned.swap(false, Ordering::Relaxed) {
            true => Err(uncertain().into()),
            false => Ok(answered),
        }
    }

    pub(super) fn learn(&self, time: i64) {
        self.server_clock.learn(time.unsigned_abs(), self.clock.now());
    }

    /// Runs a query without preparing it.
    pub(super) async fn ask(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        self.client
            .query_typed(sql, params)
            .await
            .map_err(|error| failure(&error))
    }
}

fn as_sql<'a>(value: &'a Value<'_>) -> &'a (dyn ToSql + Sync) {
    match value {
        Value::Text(text) => text,
        Value::Number(number) => number,
    }
}

/// What the server says of itself at each connect.
const GREETING: &str =
    "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only,
    {now_us} AS time, inet_client_port() AS client_port,
    current_setting('port')::int AS port";

/// A stream of bytes to and from a server.
type Stream = Either<TcpStream, UnixStream>;

/// A column of the greeting, and what it has if nothing stands between the client and the server: the port of our end of the
/// connection, or the number in the socket's name. A pooler's socket has another number than the server's.
type Peer = (&'static str, u16);

/// Connects, logs in, and asks the server what it is.
async fn connect(config: &Config, tls: &Tls, place: &Place) -> Result<PgSession, BackendError> {
    let (host, (stream, peer)) = match place {
        Place::Host(host) => {
            let opened = open(&look_up(host).await?).await;
            let opened = opened.map_err(|error| unreachable(&host.to_string(), error.to_string()));
            (host.name(), opened?)
        }
        Place::Socket(folder, port) => {
            let path = folder.join(format!(".s.PGSQL.{port}"));
            let opened = UnixStream::connect(&path).await;
            let opened = opened.map_err(|error| unreachable(&path.display().to_string(), error.to_string()));
            ("localhost", (Either::Right(opened?), ("port", *port)))
        }
    };
    let connector = MakeTlsConnect::<Stream>::make_tls_connect(&mut tls.clone(), host);
    let connector = connector.map_err(|error| unreachable(host, error.to_string()))?;
    let opened = settings(config, place)
        .await?
        .connect_raw(stream, connector)
        .await;
    let (client, mut connection) = opened.map_err(|error| refused_login(&error, config))?;
    let warned = Arc::new(AtomicBool::new(false));
    let has_warned = warned.clone();
    // Moves bytes until the connection ends, and notes warnings about commits: each comes before the answer to its statement.
    let driver = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message
                && is_of_commit(&notice)
            {
                has_warned.store(true, Ordering::Relaxed);
            }
        }
    }));
    let answer = client
        .query_typed_one(&dialect(config).expand(GREETING), &[])
        .await;
    let answer = answer.map_err(|error| refused_login(&error, config))?;
    if answer.try_get::<_, bool>("read_only").unwrap_or(true) {
        let why = "each is a standby, or the role may only read; name the primary server, or see the role's \
                   `default_transaction_read_only`";
        return Err(not_writable(&config.address(), why));
    }
    let time: i64 = answer.try_get("time").unwrap_or_default();
    let seen: Option<i32> = answer.try_get(peer.0).ok().flatten();
    Ok(PgSession {
        server_clock: ServerClock::new(time.unsigned_abs(), config.clock.now()),
        clock: config.clock.clone(),
        is_pooled: seen != Some(peer.1.into()),
        prepared: HashMap::new(),
        warned,
        client,
        _driver: driver,
    })
}

async fn open(addresses: &[SocketAddr]) -> io::Result<(Stream, Peer)> {
    let stream = TcpStream::connect(addresses).await?;
    stream.set_nodelay(true)?;
    let port = stream.local_addr()?.port();
    Ok((Either::Left(stream), ("client_port", port)))
}

async fn settings(config: &Config, place: &Place) -> Result<tokio_postgres::Config, BackendError> {
    let credentials = config.login.credentials().await?;
    let user = user(config, &credentials)?;
    let mut settings = tokio_postgres::Config::new();
    settings.dbname(config.dbname.as_deref().unwrap_or(&user));
    settings.user(user);
    if let Some(password) = credentials.secret() {
        settings.password(password.expose());
    }
    settings.application_name(&config.application_name);
    if let Some(options) = &config.options {
        settings.options(options);
    }
    settings.ssl_mode(match (place, config.tls) {
        (Place::Socket(..), _) | (_, TlsMode::Disable) => SslMode::Disable,
        (_, TlsMode::Prefer) => SslMode::Prefer,
        (_, TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull) => SslMode::Require,
    });
    Ok(settings)
}
