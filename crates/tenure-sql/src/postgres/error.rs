//! What PostgreSQL's errors mean for the locks, and what to do about them.

use std::error::Error as _;

use tenure_backend::{BackendError, Effect, Fault};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::server::Config;
use crate::server::error::{Failure, Refusal, connection_broke, no_tls, offers_no_tls, unreachable};

/// The failure of a statement. The server undoes a statement that it refuses, so a refusal has no effect.
pub(super) fn failure(error: &Error) -> Failure {
    let Some(refusal) = error.as_db_error() else {
        return connection_broke(cause_of(error)).into();
    };
    match refusal.code() {
        // The server names the row that it waited for. Otherwise it waited for a page that another session adds to the table.
        &SqlState::LOCK_NOT_AVAILABLE if refusal.where_().is_some() => return Failure::Busy,
        &SqlState::LOCK_NOT_AVAILABLE
        | &SqlState::T_R_SERIALIZATION_FAILURE
        | &SqlState::T_R_DEADLOCK_DETECTED => return Failure::Repeat,
        _ => {}
    }
    // The statement may have been committed just before the session was ended.
    let effect = match ends_session(refusal) {
        true => Effect::Unknown,
        false => Effect::None,
    };
    explain(refusal).into_error(effect, cause(refusal)).into()
}

/// The error of an attempt to connect.
pub(super) fn refused_login(error: &Error, config: &Config) -> BackendError {
    if let Some(refusal) = error.as_db_error() {
        return explain(refusal).into_error(Effect::None, cause(refusal));
    }
    let (address, why) = (config.address(), cause_of(error));
    // The crate writes these words itself if the server has no TLS.
    if why.contains("does not support TLS") {
        return offers_no_tls(address, "set `ssl = on` there, or write `sslmode=prefer`", why);
    }
    // With TLS 1.3, a server refuses our certificate after the handshake.
    if error.to_string().contains("TLS") || why.contains("received fatal alert") {
        return no_tls(address, why);
    }
    if why.contains("password missing") {
        let message = "PostgreSQL asks for a password: write it before the host, `USER:PASSWORD@HOST`, or name a `password_file`";
        return BackendError::new(Fault::Denied, Effect::None, message);
    }
    unreachable(address, why)
}

/// Returns whether the server does not know a statement that was prepared, or knows one of that name already: a pooler has sent
/// it to another server process. The statement had no effect.
pub(super) fn is_of_preparing(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(&SqlState::INVALID_SQL_STATEMENT_NAME | &SqlState::DUPLICATE_PSTATEMENT)
    )
}

fn ends_session(refusal: &DbError) -> bool {
    matches!(refusal.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// The server's own words.
fn cause(refusal: &DbError) -> String {
    format!("{} ({})", refusal.message(), refusal.code().code())
}

fn cause_of(error: &Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// The code of a refusal. PgBouncer refuses all logins with one code, so its words decide.
fn code(refusal: &DbError) -> &SqlState {
    let says = |words: &str| refusal.message().contains(words);
    match refusal.code() {
        &SqlState::PROTOCOL_VIOLATION if says("authentication failed") => &SqlState::INVALID_PASSWORD,
        &SqlState::PROTOCOL_VIOLATION if says("no such user") => {
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        }
        &SqlState::PROTOCOL_VIOLATION if says("no such database") => &SqlState::INVALID_CATALOG_NAME,
        code => code,
    }
}

fn explain(refusal: &DbError) -> Refusal {
    match code(refusal) {
        &SqlState::INVALID_PASSWORD => {
            Refusal::denied("PostgreSQL refuses the password: correct it in the URL or its file")
        }
        &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => Refusal::denied(
            "PostgreSQL refuses the login: see whether the role exists and may log in from here (`pg_hba.conf`)",
        ),
        &SqlState::INVALID_CATALOG_NAME => Refusal::NO_DATABASE,
        &SqlState::INSUFFICIENT_PRIVILEGE => Refusal::NO_PERMISSION,
        &SqlState::INVALID_SCHEMA_NAME => {
            Refusal::store("the schema is not there: create it, or name another with `schema`")
        }
        &SqlState::UNDEFINED_TABLE => Refusal::NO_TABLE,
        &SqlState::UNDEFINED_COLUMN | &SqlState::DATATYPE_MISMATCH | &SqlState::NOT_NULL_VIOLATION => {
            Refusal::OTHER_COLUMNS
        }
        &SqlState::READ_ONLY_SQL_TRANSACTION => Refusal::unavailable(
            "the server or the role is read-only: name the primary server, and see the role's `default_transaction_read_only`",
        ),
        &SqlState::TOO_MANY_CONNECTIONS | &SqlState::CONFIGURATION_LIMIT_EXCEEDED => Refusal::unavailable(
            "PostgreSQL has too many connections: lower `connections` of its clients, raise `max_connections`, or use a pooler",
        ),
        &SqlState::QUERY_CANCELED => Refusal::unavailable(
            "another session, or the role's `statement_timeout`, has cancelled the statement",
        ),
        // The next connection prepares its statements for the table as it is.
        &SqlState::FEATURE_NOT_SUPPORTED if refusal.routine() == Some("RevalidateCachedQuery") => {
            Refusal::unavailable("the table's columns have changed: the client connects again")
        }
        &SqlState::CANNOT_CONNECT_NOW => {
            Refusal::unavailable("PostgreSQL is starting up or shutting down: try again")
        }
        &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN => Refusal::SESSION_ENDED,
        &SqlState::DISK_FULL => Refusal::DISK_FULL,
        &SqlState::STRING_DATA_RIGHT_TRUNCATION => Refusal::TOO_LONG,
        // PgBouncer answers so.
        &SqlState::PROTOCOL_VIOLATION | &SqlState::CONNECTION_EXCEPTION | &SqlState::CONNECTION_FAILURE => {
            Refusal::CONNECTION_LOST
        }
        _ if ends_session(refusal) => Refusal::SESSION_ENDED,
        _ => Refusal::OTHER,
    }
}

/// Returns whether a notice may say that a commit no longer waits for a standby. Servers warn of much else, some of it at
/// each login, with the same code. The words depend on the server's language, the name of its routine does not.
pub(super) fn is_of_commit(notice: &DbError) -> bool {
    notice.parsed_severity() == Some(Severity::Warning)
        && notice
            .routine()
            .is_none_or(|routine| routine.starts_with("SyncRep"))
}

/// Error for a write that came with a warning: a commit that waited for a standby was cancelled, so the write is on this
/// server and may be gone after a failover.
pub(super) fn uncertain() -> BackendError {
    let message =
        "PostgreSQL has written the lock with a warning, so it may not be on the standbys: it does not count";
    BackendError::new(Fault::Unavailable, Effect::Unknown, message)
}
