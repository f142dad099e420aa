//! Reaching the server: a bare connection, or one that speaks TLS.

#[cfg(feature = "tls")]
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use redis::{RedisConnectionInfo, RedisError};
use tenure_backend::BackendError;
use tenure_endpoint::read_password_file;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::config::Config;
use crate::error::{self, NoConnection};
use crate::spin::SpinStream;

/// Bytes to and from the server.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// How connections to the server are made: the one for calls, and the one for wake-ups.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) config: Arc<Config>,
    /// The process that connected: a child made by `fork` has the connections, but not the tasks that serve them.
    pub(crate) process: u32,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Dialer {
    /// Reads the certificates, if there are any.
    #[cfg(feature = "tls")]
    pub(crate) fn new(config: Config) -> Result<Self, BackendError> {
        use tenure_backend::{Effect, Fault};

        let connector = |tls: &crate::config::Tls| {
            let identity = tls.identity.as_ref().map(|(cert, key)| (&**cert, &**key));
            tenure_endpoint::tls_config(tls.ca.as_deref(), identity)
        };
        let tls = config.tls.as_ref().map(connector).transpose();
        // In one text: nobody hears the cause of what is invalid.
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
        })
    }

    /// Refuses a child made by `fork`. It comes before any lock of ours: another thread of the parent may have held it.
    pub(crate) fn check_process(&self) -> Result<(), BackendError> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(error::forked()),
        }
    }

    /// A connection on which nothing has been said.
    pub(crate) async fn dial(&self) -> Result<Box<dyn Duplex>, NoConnection> {
        self.secure(self.connect().await?).await
    }

    /// One for calls, of which so many are under way at a time.
    pub(crate) async fn dial_for_calls(
        &self,
        under_way: &Arc<AtomicUsize>,
    ) -> Result<Box<dyn Duplex>, NoConnection> {
        let stream = self.connect().await?;
        match self.config.spin {
            true => self.secure(SpinStream::new(stream, under_way.clone())).await,
            false => self.secure(stream).await,
        }
    }

    async fn connect(&self) -> Result<TcpStream, NoConnection> {
        let host = self.config.host.name();
        let stream = TcpStream::connect((host, self.config.port())).await;
        let stream = stream.map_err(RedisError::from)?;
        stream.set_nodelay(true).map_err(RedisError::from)?;
        Ok(stream)
    }

    #[cfg(feature = "tls")]
    async fn secure(&self, stream: impl Duplex + 'static) -> Result<Box<dyn Duplex>, NoConnection> {
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = self.config.host.name().to_owned();
        let name = name
            .try_into()
            .map_err(|error| NoConnection::Tls(io::Error::other(error)))?;
        let secured = tls.connect(name, stream).await;
        Ok(Box::new(secured.map_err(NoConnection::Tls)?))
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, stream: impl Duplex + 'static) -> Result<Box<dyn Duplex>, NoConnection> {
        Ok(Box::new(stream))
    }

    /// How we introduce ourselves. Reads the password file, since the password may have been rotated.
    pub(crate) fn greeting(&self) -> Result<RedisConnectionInfo, NoConnection> {
        let config = &self.config;
        let file = config.password_file.as_deref().map(read_password_file);
        let file = file.transpose().map_err(NoConnection::PasswordFile)?;
        let password = file.map(|file| file.password).or_else(|| config.password.clone());
        let mut info = RedisConnectionInfo::default()
            .set_lib_name("tenure", env!("CARGO_PKG_VERSION"))
            .set_db(i64::from(config.database));
        if let Some(user) = &config.user {
            info = info.set_username(user);
        }
        Ok(match password {
            Some(password) => info.set_password(password.expose()),
            // Without any we would be the default user, whoever was named.
            None if config.user.is_some() => info.set_password(""),
            None => info,
        })
    }
}
