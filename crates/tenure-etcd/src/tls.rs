//! TLS, as the settings ask for it. `no_tls.rs` is in its place in a build without the feature `tls`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::BackendError;
use tenure_endpoint::{Host, Tls};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::error::no_tls;

/// Longest wait for a member's first bytes after the handshake. etcd sends them at once; a proxy may wait for ours.
const GREETING: Duration = Duration::from_millis(200);

/// The TLS settings of all connections.
pub(crate) use tokio_rustls::TlsConnector as Connector;

/// Reads the certificates. Fails if they are invalid.
pub(crate) fn connector(tls: &Tls) -> Result<Connector, BackendError> {
    let mut config = tls.client_config()?;
    // Servers of gRPC refuse a client that does not name the protocol.
    Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec()];
    Ok(config.into())
}

/// Secures a connection.
pub(crate) async fn secure(
    connector: &Connector,
    host: &Host,
    stream: TcpStream,
) -> Result<BufReader<TlsStream<TcpStream>>, BackendError> {
    let name = host.name().to_owned().try_into();
    let name = name.map_err(|error| no_tls(host, &error))?;
    let secured = async {
        let mut secured = BufReader::new(connector.connect(name, stream).await?);
        // With TLS 1.3 a server refuses the client's certificate after the handshake. A client that writes first may not
        // receive the refusal.
        if let Ok(greeting) = timeout(GREETING, secured.fill_buf()).await {
            greeting?;
        }
        Ok::<_, io::Error>(secured)
    };
    secured.await.map_err(|error| no_tls(host, &error))
}
