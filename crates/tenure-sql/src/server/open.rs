//! Opens a store, and creates its table, on the database that the settings name.

use std::sync::Arc;

use tenure_backend::{Backend, BackendError};

use super::config::{Config, Database};
use crate::lease_rows::session::LeaseSession;
use crate::lease_rows::{store, table};
#[cfg(feature = "mysql")]
use crate::mysql::MySqlSession;
#[cfg(feature = "postgres")]
use crate::postgres::PgSession;

/// Connects to the server, and checks its table. Writes nothing. Idle connections are closed after 10 s.
///
/// # Cancel safety
/// Dropping the future closes the connection.
///
/// # Errors
/// `Unavailable` if the server cannot be reached, is not ready, or accepts no writes, `Denied` if it refuses the user, the
/// password or a permission, `Invalid` if a setting is wrong or the database does not exist, `Store` if the table is missing
/// or has other columns, the host is unknown, or TLS fails, `Unsupported` if the database was left out of this build.
///
/// # Panics
/// Outside of a tokio runtime with timers and I/O.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_sql::server::{Config, StoreUrl, open};
///
/// let url = StoreUrl::parse("postgres://ada:s3cr3t@db.example/shop?layout=version")?;
/// let store = open(Config::from_url(&url)?).await?;
/// assert_eq!(store.profile().layout, "version");
/// # Ok(()) }
/// ```
pub async fn open(config: Config) -> Result<Arc<dyn Backend>, BackendError> {
    match config.database {
        #[cfg(feature = "postgres")]
        Database::Postgres => store::open::<PgSession>(config).await,
        #[cfg(feature = "mysql")]
        Database::MySql => store::open::<MySqlSession>(config).await,
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        other => Err(left_out(other)),
    }
}

/// Creates the table of the layout, if it is not there, with a role that may do so.
///
/// # Cancel safety
/// Dropping the future may leave the table created or not.
///
/// # Errors
/// As [`open`].
pub async fn create(config: Config) -> Result<(), BackendError> {
    match config.database {
        #[cfg(feature = "postgres")]
        Database::Postgres => store::create::<PgSession>(config).await,
        #[cfg(feature = "mysql")]
        Database::MySql => store::create::<MySqlSession>(config).await,
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        other => Err(left_out(other)),
    }
}

/// The statements that create the table of the layout, and the permissions that a role needs. Does not connect.
///
/// # Errors
/// `Unsupported` if the database was left out of this build.
pub fn schema(config: &Config) -> Result<String, BackendError> {
    let dialect = match config.database {
        #[cfg(feature = "postgres")]
        Database::Postgres => PgSession::dialect(config),
        #[cfg(feature = "mysql")]
        Database::MySql => MySqlSession::dialect(config),
        #[cfg(not(all(feature = "postgres", feature = "mysql")))]
        other => return Err(left_out(other)),
    };
    Ok(table::schema(config.layout, &dialect))
}

#[cfg(not(all(feature = "postgres", feature = "mysql")))]
fn left_out(database: Database) -> BackendError {
    let feature = database.names().scheme;
    BackendError::unsupported(format!(
        "`{feature}` was left out of this build: enable this feature"
    ))
}
