//! TLS, as the settings ask for it.

use tenure_backend::BackendError;
use tenure_endpoint::Host;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::no_tls;

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
