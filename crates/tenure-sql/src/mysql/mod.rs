//! MySQL and MariaDB: connections, statements, errors and findings.

mod dial;
mod error;
mod examine;
mod lease_session;
mod session;
mod statements;
mod table;
#[cfg(feature = "tls")]
mod tls;

use std::sync::Arc;

use tenure_backend::{Backend, BackendError};

use crate::lease_rows;
use crate::server::Config;
use dial::Dialer;

pub(crate) async fn open(config: &Config) -> Result<Arc<dyn Backend>, BackendError> {
    lease_rows::open(Dialer::new(config)?).await
}

pub(crate) async fn create(config: &Config) -> Result<(), BackendError> {
    lease_rows::create(Dialer::new(config)?, &schema(config)).await
}

/// One text serves both kinds of server.
pub(crate) fn schema(config: &Config) -> String {
    lease_rows::schema(config.layout, &statements::dialect(config))
}
