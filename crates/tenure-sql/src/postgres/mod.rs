//! PostgreSQL: connections, statements, errors and findings.

mod ddl;
mod dial;
mod error;
mod examine;
mod lease_session;
mod session;
mod statements;
mod table;

use std::sync::Arc;

use tenure_backend::{Backend, BackendError};

use crate::lease_rows::LeaseRowStore;
use crate::server::Config;
use crate::server::error::Failure;
use crate::server::pool::Pool;
pub(crate) use ddl::schema;
use dial::Dialer;

/// Connects once, to check the server and the table, and returns the store.
pub(crate) async fn open(config: Config) -> Result<Arc<dyn Backend>, BackendError> {
    let pool = Pool::new(Dialer::new(&config)?);
    let mut leased = pool.lease().await?;
    let checked = pool.within(table::check(&mut leased.session, &config)).await;
    let widths = leased.end(checked).map_err(Failure::into_error)?;
    Ok(LeaseRowStore::new(
        pool,
        statements::statements(&config),
        widths,
        config,
    ))
}

/// Lets one client at a time create a table: the server refuses all but one of several `CREATE TABLE IF NOT EXISTS` that
/// run at once. The server runs a script as one transaction.
const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(hashtextextended('tenure schema', 0));";

/// Creates the table of the layout, if it is not there.
pub(crate) async fn create(config: Config) -> Result<(), BackendError> {
    let pool = Pool::new(Dialer::new(&config)?);
    let mut leased = pool.lease().await?;
    let script = [ONE_AT_A_TIME, &schema(&config)].concat();
    let created = pool.within(leased.session.create(&script)).await;
    let created = leased.end(created).map_err(Failure::into_error);
    pool.close();
    created
}
