//! Connecting and logging in.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
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

use super::error::{is_of_commit, refused_login};
use super::session::PgSession;
use crate::server::dial::{Dial, look_up, user};
use crate::server::error::{not_writable, unreachable};
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
        #[cfg(feature = "tls")]
        if let (Some(tls), Place::Hosts(_)) = (&self.tls, &self.config.place) {
            use tokio_postgres::tls::MakeTlsConnect;

            let mut tls = tls.clone();
            let connector = MakeTlsConnect::<Stream>::make_tls_connect(&mut tls, host);
            let connector = connector.map_err(|error| unreachable(host, error.to_string()))?;
            return self.greet(settings, stream, connector, peer).await;
        }
        self.greet(settings, stream, tokio_postgres::NoTls, peer).await
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
        settings.ssl_mode(match (&config.place, config.tls) {
            (Place::Socket(..), _) | (_, TlsMode::Disable) => SslMode::Disable,
            (_, TlsMode::Prefer) => SslMode::Prefer,
            (_, TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull) => SslMode::Require,
        });
        Ok(settings)
    }

    /// Logs in, and asks the server what it is.
    async fn greet<T>(
        &self,
        settings: tokio_postgres::Config,
        stream: Stream,
        tls: T,
        peer: Peer,
    ) -> Result<PgSession, BackendError>
    where
        T: TlsConnect<Stream> + Send,
        T::Stream: Send + 'static,
        T::Future: Send,
    {
        let opened = settings.connect_raw(stream, tls).await;
        let (client, connection) = opened.map_err(|error| refused_login(&error, &self.config))?;
        let warned = Arc::new(AtomicBool::new(false));
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
        let greeting = match &self.config.server_clock {
            Some(clock) => &GREETING.replace("clock_timestamp()", clock),
            None => GREETING,
        };
        let answer = session.client.query_typed_one(greeting, &[]).await;
        let answer = answer.map_err(|error| refused_login(&error, &self.config))?;
        if answer.try_get::<_, bool>("read_only").unwrap_or(true) {
            let why = "each is a standby, or the role may only read; name the primary server, or see the role's \
                       `default_transaction_read_only`";
            return Err(not_writable(&self.config.address(), why));
        }
        let time: i64 = answer.try_get("time").unwrap_or_default();
        session.server_clock = ServerClock::new(time.unsigned_abs(), self.config.clock.now());
        let seen: Option<i32> = answer.try_get(peer.0).ok().flatten();
        session.is_pooled = seen != Some(peer.1.into());
        Ok(session)
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
            .map_err(|error| unreachable(&host.to_string(), error.to_string()))?;
        self.log_in(Either::Left(stream), host.name(), ("client_port", own.port()))
            .await
    }

    async fn socket(&self, folder: &Path, port: u16) -> Result<PgSession, BackendError> {
        let path = folder.join(format!(".s.PGSQL.{port}"));
        let stream = UnixStream::connect(&path).await;
        let stream = stream.map_err(|error| unreachable(&path.display().to_string(), error.to_string()))?;
        self.log_in(Either::Right(stream), "localhost", ("port", port))
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

/// A column of the greeting, and what it has if nothing stands between the client and the server: the port of our end of the
/// connection, or the number in the socket's name. A pooler's socket has another number than the server's.
type Peer = (&'static str, u16);

/// A stream of bytes to and from a server.
type Stream = Either<TcpStream, UnixStream>;
