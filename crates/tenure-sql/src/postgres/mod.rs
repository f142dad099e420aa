//! PostgreSQL: connections, statements, errors and findings.

mod dial;
mod error;
mod examine;
mod lease_session;
mod session;
mod statements;
mod table;

pub(crate) use dial::Dialer;
pub(crate) use statements::dialect;

/// Lets one client at a time create a table: the server refuses all but one of several `CREATE TABLE IF NOT EXISTS` that
/// run at once. The server runs a script as one transaction.
pub(crate) const ONE_AT_A_TIME: &str = "SELECT pg_advisory_xact_lock(hashtextextended('tenure schema', 0));";
