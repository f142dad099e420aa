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

/// Creates the table of the layout, if it is not there.
pub(crate) async fn create(config: Config) -> Result<(), BackendError> {
    let pool = Pool::new(Dialer::new(&config)?);
    let mut leased = pool.lease().await?;
    let created = pool.within(leased.session.create(&schema(&config))).await;
    let created = leased.end(created).map_err(Failure::into_error);
    pool.close();
    created
}
