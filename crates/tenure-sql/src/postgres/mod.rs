//! PostgreSQL: connections, statements, errors and findings.

mod error;
mod examine;
mod lease_session;
mod session;

pub(crate) use session::PgSession;
