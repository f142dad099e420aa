//! Opens streams of bytes to servers and sentinels, plain or with TLS.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use redis::RedisError;
use tenure_backend::BackendError;
use tenure_endpoint::Host;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::config::Config;
use crate::connection::connect_error::ConnectError;
#[cfg(feature = "tls")]
use crate::connection::connect_error::no_tls;
use crate::connection::spin::SpinStream;

/// A stream of bytes to and from a server.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Opens streams, all with the same TLS settings.
#[derive(Clone)]
pub(crate) struct Streams {
    spin: bool,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Streams {
    /// Reads the certificates if TLS is configured; fails if they are invalid.
    #[cfg(feature = "tls")]
    pub(crate) fn new(config: &Config) -> Result<Self, BackendError> {
        let connector = |tls: &crate::config::Tls| {
            let identity = tls.identity.as_ref().map(|(cert, key)| (&**cert, &**key));
            tenure_endpoint::tls_config(tls.ca.as_deref(), identity)
        };
        let tls = config.tls.as_ref().map(connector).transpose();
        // Flattens the cause into the message, because `Invalid` errors carry no source.
        let tls = tls.map_err(|error| crate::error::invalid(format!("no TLS can be spoken: {error}")))?;
        Ok(Streams {
            spin: config.spin,
            tls: tls.map(Into::into),
        })
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn new(config: &Config) -> Result<Self, BackendError> {
        if config.tls.is_some() {
            return Err(BackendError::unsupported(
                "TLS was left out of this build: enable the feature `tls`, or write `redis://`",
            ));
        }
        Ok(Streams { spin: config.spin })
    }

    /// Connects to the server, with TLS if it is configured. The stream does not spin.
    pub(crate) async fn open(&self, server: &Host) -> Result<Box<dyn Duplex>, ConnectError> {
        self.secure(server, connect(server).await?).await
    }

    /// Opens a stream for calls, which spins for replies if `Config::spin` is set. `in_flight` counts the calls that
    /// wait for a reply.
    pub(crate) async fn open_for_calls(
        &self,
        server: &Host,
        in_flight: &Arc<AtomicUsize>,
    ) -> Result<Box<dyn Duplex>, ConnectError> {
        let stream = connect(server).await?;
        if !self.spin {
            return self.secure(server, stream).await;
        }
        let stream = SpinStream::new(stream, in_flight.clone());
        self.secure(server, stream).await
    }

    #[cfg(feature = "tls")]
    async fn secure(
        &self,
        server: &Host,
        stream: impl Duplex + 'static,
    ) -> Result<Box<dyn Duplex>, ConnectError> {
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let name = server.name().to_owned().try_into();
        let secured = tls
            .connect(name.map_err(|error| no_tls(server, error))?, stream)
            .await;
        Ok(Box::new(secured.map_err(|error| no_tls(server, error))?))
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, _: &Host, stream: impl Duplex + 'static) -> Result<Box<dyn Duplex>, ConnectError> {
        Ok(Box::new(stream))
    }
}

async fn connect(server: &Host) -> Result<TcpStream, ConnectError> {
    let stream = TcpStream::connect((server.name(), server.port_or(0))).await;
    let stream = stream.map_err(RedisError::from)?;
    stream.set_nodelay(true).map_err(RedisError::from)?;
    Ok(stream)
}
