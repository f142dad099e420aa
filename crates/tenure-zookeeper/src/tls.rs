//! TLS, as the settings ask for it.

use tenure_backend::BackendError;
use tenure_endpoint::{Host, tls_config};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::Tls;
use crate::error::{invalid, no_tls};

/// Reads the certificates. Fails if they are invalid.
pub(crate) fn connector(tls: &Tls) -> Result<TlsConnector, BackendError> {
    let identity = tls.identity.as_ref().map(|(cert, key)| (&**cert, &**key));
    let read = tls_config(tls.ca.as_deref(), identity);
    // Flattens the cause into the message, because `Invalid` errors carry no source.
    let config = read.map_err(|error| invalid(format!("no TLS can be spoken: {error}")))?;
    Ok(config.into())
}

/// Secures a connection.
pub(crate) async fn secure(
    connector: &TlsConnector,
    host: &Host,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, BackendError> {
    let name = host.name().to_owned().try_into();
    let name = name.map_err(|error| no_tls(host, &error))?;
    let secured = connector.connect(name, stream).await;
    secured.map_err(|error| no_tls(host, &error))
}
