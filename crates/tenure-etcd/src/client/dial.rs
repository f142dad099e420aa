//! Opens connections to members.

use tenure_backend::BackendError;
use tenure_endpoint::{Host, addresses};
use tokio::net::TcpStream;

use super::connection::Connection;
use crate::config::Config;
use crate::error::{invalid, unknown_host, unreachable};

/// Opens connections, all with the same TLS settings.
pub(super) struct Dialer {
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Dialer {
    /// Reads the certificates if TLS is configured. Fails if they are invalid.
    pub(super) fn new(config: &Config) -> Result<Self, BackendError> {
        #[cfg(feature = "tls")]
        return Ok(Dialer {
            tls: config.tls.as_ref().map(crate::tls::connector).transpose()?,
        });
        #[cfg(not(feature = "tls"))]
        match config.tls {
            None => Ok(Dialer {}),
            Some(_) => Err(BackendError::unsupported(
                "TLS was left out of this build: enable the feature `tls`, or write `etcd://`",
            )),
        }
    }

    /// Connects to a member. It may not answer yet.
    pub(super) async fn open(&self, host: &Host) -> Result<Connection, BackendError> {
        let found = addresses(host)
            .await
            .map_err(|error| unknown_host(host, &error))?;
        let opened = TcpStream::connect(&*found).await;
        let opened = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let opened = opened.map_err(|error| unreachable(host, &error))?;
        let origin = |scheme| {
            let origin = format!("{scheme}://{host}").parse();
            origin.map_err(|_| invalid(format!("{host} is not the name of a host")))
        };
        // Go's HTTP/2 takes the user from the client's certificate only if the scheme is `https`.
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let secured = crate::tls::secure(tls, host, opened).await?;
            let opened = Connection::open(secured, origin("https")?).await;
            return opened.map_err(|error| unreachable(host, &error));
        }
        let opened = Connection::open(opened, origin("http")?).await;
        opened.map_err(|error| unreachable(host, &error))
    }
}
