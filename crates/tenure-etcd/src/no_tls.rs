//! What stands for TLS in a build without it.

use tenure_backend::BackendError;
use tenure_endpoint::{Host, Tls};
use tokio::net::TcpStream;

/// No build without TLS has TLS settings.
pub(crate) enum Connector {}

/// Refuses TLS.
pub(crate) fn connector(_: &Tls) -> Result<Connector, BackendError> {
    Err(BackendError::unsupported(
        "TLS was left out of this build: enable the feature `tls`, or write `etcd://`",
    ))
}

pub(crate) async fn secure(connector: &Connector, _: &Host, _: TcpStream) -> Result<TcpStream, BackendError> {
    match *connector {}
}
