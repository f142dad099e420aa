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

pub(crate) use dial::Dialer;
pub(crate) use statements::dialect;
