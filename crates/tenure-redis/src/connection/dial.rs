//! Opens connections to the server, plain or with TLS, and prepares the login.

#[cfg(feature = "tls")]
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use redis::{RedisConnectionInfo, RedisError};
use tenure_backend::BackendError;
use tenure_endpoint::{Host, read_password_file};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::config::Config;
use crate::connection::spin::SpinStream;
use crate::error::{self, ConnectError};

/// A stream of bytes to and from the server.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Opens the connection for calls and the one for subscriptions.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) config: Arc<Config>,
    /// ID of the process that connected. A child made by `fork` has the connections, but not their tasks: its calls fail.
    pub(crate) process: u32,
    /// Set if the server is a node of a cluster: notified when slots may have moved to other nodes.
    pub(crate) moves: Option<Arc<Notify>>,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Dialer {
    /// Reads the certificates if TLS is configured; fails if they are invalid.
    #[cfg(feature = "tls")]
    pub(crate) fn new(config: Config) -> Result<Self, BackendError> {
        use tenure_backend::{Effect, Fault};

        let connector = |tls: &crate::config::Tls| {
            let identity = tls.identity.as_ref().map(|(cert, key)| (&**cert, &**key));
            tenure_endpoint::tls_config(tls.ca.as_deref(), identity)
        };
        let tls = config.tls.as_ref().map(connector).transpose();
        // Flattens the cause into the message, because `Invalid` errors carry no source.
        let tls = tls.map_err(|error| {
            BackendError::new(
                Fault::Invalid,
                Effect::None,
                format!("no TLS can be spoken: {error}"),
            )
        })?;
        Ok(Dialer {
            config: Arc::new(config),
            process: std::process::id(),
            moves: None,
            tls: tls.map(Into::into),
        })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(config: Config) -> Result<Self, BackendError> {
        if config.tls.is_some() {
            return Err(BackendError::unsupported(
                "TLS was left out of this build: enable the feature `tls`, or write `redis://`",
            ));
        }
        Ok(Dialer {
            config: Arc::new(config),
            process: std::process::id(),
            moves: None,
        })
    }

    /// The same settings for the nodes of a cluster, which notify `moves` when slots may have moved.
    pub(crate) fn for_cluster(self, moves: Arc<Notify>) -> Self {
        let moves = Some(moves);
        Dialer { moves, ..self }
    }

    /// The same settings for another server.
    pub(crate) fn to(&self, host: Host) -> Self {
        Dialer {
            config: Arc::new((*self.config).clone().host(host)),
            ..self.clone()
        }
    }

    /// Asks for a look at which node serves which slot, if the server is a node of a cluster.
    pub(crate) fn slots_may_have_moved(&self) {
        if let Some(moves) = &self.moves {
            moves.notify_one();
        }
    }

    /// Fails in a child made by `fork`. Callers check this before they take a mutex, because a thread of the parent may have
    /// held the mutex at the fork.
    pub(crate) fn check_process(&self) -> Result<(), BackendError> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(error::forked()),
        }
    }

    /// Opens a connection, without logging in.
    pub(crate) async fn dial(&self) -> Result<Box<dyn Duplex>, ConnectError> {
        self.secure(self.connect().await?).await
    }

    /// Opens a connection for calls, which spins for replies if `Config::spin` is set. `in_flight` counts the calls that
    /// wait for a reply.
    pub(crate) async fn dial_for_calls(
        &self,
        in_flight: &Arc<AtomicUsize>,
    ) -> Result<Box<dyn Duplex>, ConnectError> {
        let stream = self.connect().await?;
        match self.config.spin {
            true => self.secure(SpinStream::new(stream, in_flight.clone())).await,
            false => self.secure(stream).await,
        }
    }

    async fn connect(&self) -> Result<TcpStream, ConnectError> {
        let host = self.config.host.name();
        let stream = TcpStream::connect((host, self.config.port())).await;
        let stream = stream.map_err(RedisError::from)?;
        stream.set_nodelay(true).map_err(RedisError::from)?;
        Ok(stream)
    }

    #[cfg(feature = "tls")]
    async fn secure(&self, stream: impl Duplex + 'static) -> Result<Box<dyn Duplex>, ConnectError> {
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = self.config.host.name().to_owned();
        let name = name
            .try_into()
            .map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
        let secured = tls.connect(name, stream).await;
        Ok(Box::new(secured.map_err(ConnectError::Tls)?))
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, stream: impl Duplex + 'static) -> Result<Box<dyn Duplex>, ConnectError> {
        Ok(Box::new(stream))
    }

    /// The user, password and database to log in with. Fetches credentials or reads the password file each time, because
    /// they may have been rotated.
    pub(crate) async fn handshake(&self) -> Result<RedisConnectionInfo, ConnectError> {
        let config = &self.config;
        if let Some(source) = &config.credentials {
            let fetched = source.fetch().await.map_err(ConnectError::Credentials)?;
            let info = RedisConnectionInfo::default()
                .set_lib_name("tenure", env!("CARGO_PKG_VERSION"))
                .set_db(i64::from(config.database))
                .set_password(fetched.password.expose());
            return Ok(match &fetched.user {
                Some(user) => info.set_username(user),
                None => info,
            });
        }
        let file = config.password_file.as_deref().map(read_password_file);
        let file = file.transpose().map_err(ConnectError::PasswordFile)?;
        let password = file.map(|file| file.password).or_else(|| config.password.clone());
        let mut info = RedisConnectionInfo::default()
            .set_lib_name("tenure", env!("CARGO_PKG_VERSION"))
            .set_db(i64::from(config.database));
        if let Some(user) = &config.user {
            info = info.set_username(user);
        }
        Ok(match password {
            Some(password) => info.set_password(password.expose()),
            // An empty password makes the client log in. Otherwise it would act as the default user.
            None if config.user.is_some() => info.set_password(""),
            None => info,
        })
    }
}
