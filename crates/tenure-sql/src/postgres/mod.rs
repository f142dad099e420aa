//! PostgreSQL: connections, statements, errors and findings.

mod error;
mod examine;
mod lease_session;
mod session;
mod statements;
mod table;

pub(crate) use session::PgSession;
