//! Connecting: tries each host in turn until one accepts the login and writes.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tenure_backend::{BackendError, Fault, ServerClock};
use tenure_endpoint::{Credentials, Host, addresses};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::{AsyncMessage, Connection};
use tokio_util::either::Either;

use super::error::{is_of_commit, no_user, not_writable, refused_login, unknown_host, unreachable};
use super::session::PgSession;
use crate::server::error::not_connected;
use crate::server::pool::Dial;
use crate::server::{Config, Place, TlsMode};

/// Opens connections with the settings of a store.
pub(crate) struct Dialer {
    config: Config,
    /// Index of the host that answered last. It is tried first.
    first: AtomicUsize,
    #[cfg(feature = "tls")]
    tls: Option<tokio_postgres_rustls::MakeRustlsConnect>,
}

/// What the server says of itself at each connect.
const GREETING: &str =
    "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS read_only,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS time, inet_client_port() AS client_port,
    current_setting('port')::int AS port";

impl Dialer {
    /// Reads the certificates if TLS may be used; fails if they are invalid.
    pub(crate) fn new(config: &Config) -> Result<Self, BackendError> {
        Ok(Dialer {
            #[cfg(feature = "tls")]
            tls: tls(config)?,
            config: without_tls(config)?,
            first: AtomicUsize::new(0),
        })
    }

    async fn one(&self, host: &Host) -> Result<PgSession, BackendError> {
        let found = addresses(host)
            .await
            .map_err(|error| unknown_host(host, &error))?;
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

    async fn log_in(&self, stream: Stream, host: &str, peer: Peer) -> Result<PgSession, BackendError> {
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
        let _ = host;
        self.greet(settings, stream, tokio_postgres::NoTls, peer, warned)
            .await
    }

    fn settings(&self, credentials: &Credentials) -> Result<tokio_postgres::Config, BackendError> {
        let config = &self.config;
        let mut settings = tokio_postgres::Config::new();
        let own_name = || {
            ["USER", "LOGNAME"]
                .iter()
                .find_map(|name| std::env::var(name).ok())
        };
        let user = credentials.user_name().map(str::to_owned).or_else(own_name);
        let user = user.filter(|user| !user.is_empty()).ok_or_else(no_user)?;
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

    async fn dial(&self) -> Result<PgSession, BackendError> {
        let hosts = match &self.config.place {
            Place::Socket(folder, port) => return self.socket(folder, *port).await,
            Place::Hosts(hosts) => hosts,
        };
        // A silent host must leave time for the others.
        let limit = self.config.connect_timeout / u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
        let first = self.first.load(Ordering::Relaxed);
        let mut failed: Option<BackendError> = None;
        for index in (first..hosts.len()).chain(0..first) {
            let host = &hosts[index];
            let opened = timeout(limit, self.one(host)).await;
            match opened.unwrap_or_else(|_| Err(not_connected(&host.to_string(), limit))) {
                Ok(session) => {
                    self.first.store(index, Ordering::Relaxed);
                    return Ok(session);
                }
                // A wrong password would be refused everywhere, and repeating it may lock the user out.
                Err(error) if error.fault() == Fault::Denied => return Err(error),
                // If one host may answer later, the failure is transient, whatever the others say.
                Err(error) if error.is_transient() => failed = Some(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        Err(failed.unwrap_or_else(|| not_writable(&self.config.address())))
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

#[cfg(feature = "tls")]
fn tls(config: &Config) -> Result<Option<tokio_postgres_rustls::MakeRustlsConnect>, BackendError> {
    use tenure_endpoint::{Verification, tls_config_verifying};

    let verification = match config.tls {
        TlsMode::Disable => return Ok(None),
        TlsMode::VerifyFull => Verification::Host,
        TlsMode::VerifyCa => Verification::Authority,
        // As libpq does: who names an authority wants it to be asked.
        TlsMode::Require if config.ca.is_some() => Verification::Authority,
        TlsMode::Require | TlsMode::Prefer => Verification::Nothing,
    };
    let identity = config.identity.as_ref().map(|(cert, key)| (&**cert, &**key));
    let settings = tls_config_verifying(verification, config.ca.as_deref(), identity);
    // Flattens the cause into the message, because `Invalid` errors carry no source.
    let settings =
        settings.map_err(|error| crate::server::error::invalid(format!("no TLS can be spoken: {error}")))?;
    let settings = Arc::unwrap_or_clone(settings);
    Ok(Some(tokio_postgres_rustls::MakeRustlsConnect::new(settings)))
}

#[cfg(feature = "tls")]
fn without_tls(config: &Config) -> Result<Config, BackendError> {
    Ok(config.clone())
}

#[cfg(not(feature = "tls"))]
fn without_tls(config: &Config) -> Result<Config, BackendError> {
    match config.tls {
        TlsMode::Disable | TlsMode::Prefer => Ok(config.clone()),
        _ => Err(BackendError::unsupported(
            "TLS was left out of this build: enable the feature `tls`, or write `sslmode=disable`",
        )),
    }
}
