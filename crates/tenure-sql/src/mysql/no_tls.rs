//! A build without TLS.

use mysql_async::{Conn, Error, OptsBuilder};

use crate::server::Config;
pub(super) use crate::server::tls::refuse as settings;

pub(super) type Tls = ();

/// Connects to a host.
pub(super) async fn connect(_: &Config, (): &Tls, settings: OptsBuilder) -> Result<Conn, Error> {
    Conn::new(settings).await
}
