//! MySQL and MariaDB: connections, statements, errors and findings.

mod error;
mod examine;
mod lease_session;
mod session;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

pub(crate) use session::MySqlSession;
