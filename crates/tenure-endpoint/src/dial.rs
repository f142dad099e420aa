//! Opens connections to servers, plain or with TLS.

use std::fmt;

use tenure_backend::{BackendError, Effect, Fault};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::connect::first_to_accept;
use crate::host::Host;
use crate::lookup::look_up;
use crate::tls_settings::Tls;

/// A connection to a server, plain or with TLS.
///
/// # Examples
/// See [`Dialer`].
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What sets one kind of server apart: its names in errors, and how it speaks TLS.
///
/// # Examples
/// See [`Dialer`].
#[derive(Clone, Copy, Debug)]
pub struct ServerKind {
    /// The name in errors, such as `etcd`.
    pub name: &'static str,
    /// The scheme of URLs without TLS, such as `etcd`.
    pub scheme: &'static str,
    /// What a user should see to at the server if no TLS can be spoken, such as `whether it has a certificate`.
    pub tls_hint: &'static str,
    /// The protocol that the client names in the handshake of TLS (ALPN), for servers that refuse a client without it.
    pub tls_protocol: Option<&'static str>,
    /// Whether the server sends the first bytes after the handshake of TLS.
    pub greets: bool,
}

/// Opens connections to servers of one kind, all with the same TLS settings.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_endpoint::{Dialer, Host, ServerKind};
///
/// const ETCD: ServerKind = ServerKind {
///     name: "etcd",
///     scheme: "etcd",
///     tls_hint: "whether it has a certificate (`--cert-file`)",
///     tls_protocol: Some("h2"),
///     greets: true,
/// };
/// let dialer = Dialer::new(&ETCD, None)?;
/// let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let _stream = dialer.dial(&Host::new("127.0.0.1", server.local_addr()?.port())).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Dialer {
    kind: &'static ServerKind,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsConnector>,
}

impl Dialer {
    /// Reads the certificates if TLS is configured. Does not connect.
    ///
    /// # Errors
    /// `Invalid` if the certificates cannot be used, `Unsupported` if TLS was left out of this build.
    pub fn new(kind: &'static ServerKind, tls: Option<&Tls>) -> Result<Self, BackendError> {
        #[cfg(not(feature = "tls"))]
        if tls.is_some() {
            return Err(BackendError::unsupported(format!(
                "TLS was left out of this build: enable the feature `tls`, or write `{}://`",
                kind.scheme
            )));
        }
        Ok(Dialer {
            kind,
            #[cfg(feature = "tls")]
            tls: tls.map(|tls| secured::connector(kind, tls)).transpose()?,
        })
    }

    /// Connects to a host, which must have a port. Sends nothing but the handshake of TLS.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// `Unavailable` if the host does not accept the connection, `Store` if its name is unknown or TLS fails: the message names the
    /// host and says what to see to.
    pub async fn dial(&self, host: &Host) -> Result<Box<dyn Stream>, BackendError> {
        let opened = first_to_accept(&look_up(host).await?).await;
        let stream = opened.map_err(|error| self.unreachable(host, &error))?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return secured::secure(tls, self.kind, host, stream).await;
        }
        Ok(Box::new(stream))
    }

    /// Error for a host that refused the connection, or that closed it during the first exchange.
    #[must_use]
    pub fn unreachable(&self, host: &Host, error: &dyn fmt::Display) -> BackendError {
        let name = self.kind.name;
        let message = format!("{name} at {host} cannot be reached: see whether it runs there");
        BackendError::because(Fault::Unavailable, Effect::None, message, error.to_string())
    }
}

/// Connections with TLS.
#[cfg(feature = "tls")]
mod secured {
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt, BufReader};
    use tokio::net::TcpStream;
    use tokio::time::timeout;
    use tokio_rustls::TlsConnector;

    use super::{BackendError, Effect, Fault, Host, ServerKind, Stream, Tls, fmt};

    /// Longest wait for the first bytes of a server that greets. A proxy before it may wait for those of the client.
    const GREETING: Duration = Duration::from_millis(200);

    pub(super) fn connector(kind: &ServerKind, tls: &Tls) -> Result<TlsConnector, BackendError> {
        let mut config = tls.client_config()?;
        if let Some(protocol) = kind.tls_protocol {
            Arc::make_mut(&mut config).alpn_protocols = vec![protocol.into()];
        }
        Ok(config.into())
    }

    pub(super) async fn secure(
        connector: &TlsConnector,
        kind: &ServerKind,
        host: &Host,
        stream: TcpStream,
    ) -> Result<Box<dyn Stream>, BackendError> {
        let name = host.name().to_owned().try_into();
        let name = name.map_err(|error| no_tls(kind, host, &error))?;
        let secured = async {
            let mut secured = BufReader::new(connector.connect(name, stream).await?);
            // With TLS 1.3 a server refuses the client's certificate after the handshake. A client that writes first may not
            // receive the refusal.
            if kind.greets
                && let Ok(greeting) = timeout(GREETING, secured.fill_buf()).await
            {
                greeting?;
            }
            Ok::<_, io::Error>(secured)
        };
        let secured = secured.await.map_err(|error| no_tls(kind, host, &error))?;
        Ok(Box::new(secured))
    }

    /// Error if a server was reached, but the TLS handshake failed.
    fn no_tls(kind: &ServerKind, host: &Host, error: &dyn fmt::Display) -> BackendError {
        let (name, hint) = (kind.name, kind.tls_hint);
        let message = format!(
            "no TLS can be spoken with {name} at {host}: see {hint}, which authority signed its certificate (`ca`), for which \
             host, and whether it asks for one of ours (`cert`, `key`)"
        );
        BackendError::because(Fault::Store, Effect::None, message, error.to_string())
    }
}
