//! A build without TLS.

use mysql_async::{Conn, Error, OptsBuilder};

use crate::server::config::{Config, Place};
pub(super) use crate::server::tls::refuse as settings;

pub(super) type Tls = ();

/// Connects.
pub(super) async fn connect(_: &Config, (): &Tls, _: &Place, settings: OptsBuilder) -> Result<Conn, Error> {
    Conn::new(settings).await
}
