//! Connecting and logging in.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_backend::{BackendError, ServerClock};
use tenure_endpoint::{Credentials, Host};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{AsyncMessage, Connection};
#[cfg(feature = "tls")]
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::either::Either;

use super::error::{is_of_commit, not_writable, refused_login, unreachable};
use super::session::PgSession;
use crate::server::dial::{Dial, look_up, user};
use crate::server::{Config, Place, TlsMode, tls};

/// Opens connections with the settings of a store.
pub(crate) struct Dialer {
    config: Config,
    #[cfg(feature = "tls")]
    tls: Option<MakeRustlsConnect>,
}

/// What the server says of itself at each connect.
const GREETING: &str =
    "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS time, inet_client_port() AS client_port,
    current_setting('port')::int AS port";

impl Dialer {
    /// Reads the certificates if TLS may be used; fails if they are invalid.
    pub(crate) fn new(config: &Config) -> Result<Self, BackendError> {
        #[cfg(not(feature = "tls"))]
        tls::refuse(config)?;
        Ok(Dialer {
            #[cfg(feature = "tls")]
            tls: tls::client_config(config)?.map(|read| MakeRustlsConnect::new(Arc::unwrap_or_clone(read))),
            config: config.clone(),
        })
    }

    async fn log_in(
        &self,
        stream: Stream,
        #[cfg_attr(
            not(feature = "tls"),
            expect(unused_variables, reason = "only certificates have it")
        )]
        host: &str,
        peer: Peer,
    ) -> Result<PgSession, BackendError> {
        let credentials = self.config.login.credentials().await?;
        let settings = self.settings(&credentials)?;
        let warned = Arc::new(AtomicBool::new(false));
        #[cfg(feature = "tls")]
        if let (Some(tls), false) = (&self.tls, matches!(peer, Peer::Socket(..))) {
            use tokio_postgres::tls::MakeTlsConnect;

            let mut tls = tls.clone();
            let connector = MakeTlsConnect::<Stream>::make_tls_connect(&mut tls, host);
            let connector = connector.map_err(|error| unreachable(host, &error))?;
            return self.greet(settings, stream, connector, peer, warned).await;
        }
        self.greet(settings, stream, tokio_postgres::NoTls, peer, warned)
            .await
    }

    fn settings(&self, credentials: &Credentials) -> Result<tokio_postgres::Config, BackendError> {
        let config = &self.config;
        let mut settings = tokio_postgres::Config::new();
        let user = user(config, credentials)?;
        settings.dbname(config.dbname.as_deref().unwrap_or(&user));
        settings.user(user);
        if let Some(password) = credentials.secret() {
            settings.password(password.expose());
        }
        settings.application_name(&config.application_name);
        if let Some(options) = &config.options {
            settings.options(options);
        }
        settings.ssl_mode(match config.tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        if matches!(config.place, Place::Socket(..)) {
            settings.ssl_mode(SslMode::Disable);
        }
        Ok(settings)
    }

    /// Logs in, and asks the server what it is.
    async fn greet<T>(
        &self,
        settings: tokio_postgres::Config,
        stream: Stream,
        tls: T,
        peer: Peer,
        warned: Arc<AtomicBool>,
    ) -> Result<PgSession, BackendError>
    where
        T: TlsConnect<Stream> + Send,
        T::Stream: Send + 'static,
        T::Future: Send,
    {
        let address = self.config.address();
        let opened = settings.connect_raw(stream, tls).await;
        let (client, connection) = opened.map_err(|error| refused_login(&error, &self.config))?;
        let driver = tokio::spawn(drive(connection, warned.clone()));
        let mut session = PgSession {
            server_clock: ServerClock::new(0, self.config.clock.now()),
            clock: self.config.clock.clone(),
            is_pooled: false,
            prepared: HashMap::new(),
            warned,
            driver,
            client,
        };
        let answer = session.client.query_typed_one(&self.greeting(), &[]).await;
        let answer = answer.map_err(|error| refused_login(&error, &self.config))?;
        if answer.try_get::<_, bool>("read_only").unwrap_or(true) {
            return Err(not_writable(&address));
        }
        let time: i64 = answer.try_get("time").unwrap_or_default();
        session.server_clock = ServerClock::new(time.unsigned_abs(), self.config.clock.now());
        session.is_pooled = !peer.is_seen_by(&answer);
        Ok(session)
    }

    fn greeting(&self) -> String {
        match &self.config.server_clock {
            Some(clock) => GREETING.replace("clock_timestamp()", clock),
            None => GREETING.to_owned(),
        }
    }
}

impl Dial for Dialer {
    type Session = PgSession;

    fn config(&self) -> &Config {
        &self.config
    }

    async fn host(&self, host: &Host) -> Result<PgSession, BackendError> {
        let found = look_up(host).await?;
        let opened = async {
            let stream = TcpStream::connect(&*found).await?;
            stream.set_nodelay(true)?;
            let own = stream.local_addr()?;
            Ok::<_, io::Error>((stream, own))
        };
        let (stream, own) = opened
            .await
            .map_err(|error| unreachable(&host.to_string(), &error))?;
        self.log_in(Either::Left(stream), host.name(), Peer::Port(own))
            .await
    }

    async fn socket(&self, folder: &Path, port: u16) -> Result<PgSession, BackendError> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        let stream = UnixStream::connect(&path).await;
        let stream = stream.map_err(|error| unreachable(&path.display().to_string(), &error))?;
        self.log_in(Either::Right(stream), "localhost", Peer::Socket(port))
            .await
    }
}

/// Moves bytes until the connection ends, and notes warnings about commits: each comes before the answer to its statement.
async fn drive<T>(mut connection: Connection<Stream, T>, warned: Arc<AtomicBool>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notice(notice) = message
            && is_of_commit(&notice)
        {
            warned.store(true, Ordering::Relaxed);
        }
    }
}

/// How the server sees this client if nothing stands between them.
enum Peer {
    /// The port of our end of the connection.
    Port(SocketAddr),
    /// The number in the socket's name. A pooler's socket has another number than the server's.
    Socket(u16),
}

impl Peer {
    fn is_seen_by(&self, greeting: &tokio_postgres::Row) -> bool {
        let number = |name| greeting.try_get::<_, Option<i32>>(name).ok().flatten();
        match self {
            Peer::Port(own) => number("client_port") == Some(i32::from(own.port())),
            Peer::Socket(port) => number("port") == Some(i32::from(*port)),
        }
    }
}

/// A stream of bytes to and from a server.
type Stream = Either<TcpStream, UnixStream>;
