//! PostgreSQL: connections, statements, errors and findings.

mod dial;
mod error;
mod examine;
mod lease_session;
mod session;
mod statements;
mod table;

use std::sync::Arc;

use tenure_backend::{Backend, BackendError};

use crate::lease_rows;
use crate::server::Config;
use dial::Dialer;

pub(crate) async fn open(config: &Config) -> Result<Arc<dyn Backend>, BackendError> {
    lease_rows::open(Dialer::new(config)?).await
}

/// Lets one client at a time create a table: the server refuses all but one of several `CREATE TABLE IF NOT EXISTS` that
/// run at once. The server runs a script as one transaction.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(hashtextextended('tenure schema', 0));";

pub(crate) async fn create(config: &Config) -> Result<(), BackendError> {
    let script = [ONE_AT_A_TIME, &schema(config)].concat();
    lease_rows::create(Dialer::new(config)?, &script).await
}

pub(crate) fn schema(config: &Config) -> String {
    lease_rows::schema(config.layout, &statements::dialect(config))
}
