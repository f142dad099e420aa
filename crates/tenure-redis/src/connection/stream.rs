//! Opens streams of bytes to servers and sentinels, plain or with TLS.

use std::sync::Arc;

use redis::RedisError;
use redis::aio::AsyncStream;
use tenure_backend::BackendError;
use tenure_endpoint::{Host, addresses, first_to_accept, is_unknown_host};
use tokio::net::TcpStream;

use crate::config::Config;
#[cfg(feature = "tls")]
use crate::connection::connect_error::no_tls;
use crate::connection::connect_error::{ConnectError, unknown_host};
use crate::connection::spin::SpinStream;
use crate::connection::traffic::Traffic;

/// A stream of bytes to and from a server.
pub(crate) type Stream = Box<dyn AsyncStream + Send + Unpin>;

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
        let tls = config.tls.as_ref().map(tenure_endpoint::Tls::client_config);
        Ok(Streams {
            spin: config.spin,
            tls: tls.transpose()?.map(Into::into),
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

    /// Connects to the server, with TLS if it is configured. The stream records arrivals in `traffic`. If `Config::spin`
    /// is set, the stream spins for the reply while one caller waits for one.
    pub(crate) async fn open(
        &self,
        server: &Host,
        traffic: Option<&Arc<Traffic>>,
    ) -> Result<Stream, ConnectError> {
        // If none is given, no call is counted, and the stream never spins.
        let traffic = traffic.cloned().unwrap_or_default();
        let stream = SpinStream::new(connect(server).await?, traffic, self.spin);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let name = server.name().to_owned().try_into();
            let name = name.map_err(|error| no_tls(server, error))?;
            let secured = tls.connect(name, stream).await;
            return Ok(Box::new(secured.map_err(|error| no_tls(server, error))?));
        }
        Ok(Box::new(stream))
    }
}

async fn connect(server: &Host) -> Result<TcpStream, ConnectError> {
    let connecting = async { first_to_accept(&addresses(server).await?).await };
    connecting.await.map_err(|error| match is_unknown_host(&error) {
        true => unknown_host(server, &error).into(),
        false => ConnectError::from(RedisError::from(error)),
    })
}
