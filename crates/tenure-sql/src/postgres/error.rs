//! What PostgreSQL's errors mean for the locks, and what to do about them.

use std::error::Error as _;
use std::fmt::Display;

use tenure_backend::{BackendError, Effect, Fault};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::server::Config;
use crate::server::error::Failure;

/// The failure of a statement. The server undoes a statement that it refuses, so a refusal has no effect.
pub(super) fn failure(error: &Error) -> Failure {
    let Some(refusal) = error.as_db_error() else {
        return lost(error).into();
    };
    let code = refusal.code();
    let is_busy = [
        &SqlState::LOCK_NOT_AVAILABLE,
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
    ];
    if is_busy.contains(&code) {
        return Failure::Busy;
    }
    let ends_session = matches!(refusal.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    // The statement may have been committed just before the session was ended.
    let effect = if ends_session {
        Effect::Unknown
    } else {
        Effect::None
    };
    let (fault, message) = explain(refusal);
    BackendError::because(fault, effect, message, cause(refusal)).into()
}

/// The error of an attempt to connect.
pub(super) fn refused_login(error: &Error, config: &Config) -> BackendError {
    let address = config.address();
    if let Some(refusal) = error.as_db_error() {
        let (fault, message) = explain(refusal);
        return BackendError::because(fault, Effect::None, message, cause(refusal));
    }
    let why = cause_of(error);
    // The crate writes these words itself if the server has no TLS.
    if why.contains("does not support TLS") {
        let message = format!(
            "PostgreSQL at {address} does not offer TLS: set `ssl = on` there, or write `sslmode=prefer`"
        );
        return BackendError::because(Fault::Store, Effect::None, message, why);
    }
    // With TLS 1.3, a server refuses our certificate after the handshake.
    if error.to_string().contains("TLS") || why.contains("received fatal alert") {
        let message = format!(
            "no TLS can be spoken with PostgreSQL at {address}: see which authority signed its certificate (`ca`), for \
             which host, and whether it asks for one of ours (`cert`, `key`)"
        );
        return BackendError::because(Fault::Store, Effect::None, message, why);
    }
    if why.contains("password missing") {
        let message = "PostgreSQL asks for a password: write it before the host, `USER:PASSWORD@HOST`, or name a `password_file`";
        return BackendError::new(Fault::Denied, Effect::None, message);
    }
    let message = format!("PostgreSQL at {address} cannot be reached: see whether it runs there");
    BackendError::because(Fault::Unavailable, Effect::None, message, why)
}

fn lost(error: &Error) -> BackendError {
    let message = "PostgreSQL did not answer: the connection broke";
    BackendError::because(Fault::Unavailable, Effect::Unknown, message, cause_of(error))
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

/// The fault of a refusal, and what to do about it.
fn explain(refusal: &DbError) -> (Fault, &'static str) {
    match code(refusal) {
        &SqlState::INVALID_PASSWORD => (
            Fault::Denied,
            "PostgreSQL refuses the password: correct it in the URL or its file",
        ),
        &SqlState::INVALID_AUTHORIZATION_SPECIFICATION => (
            Fault::Denied,
            "PostgreSQL refuses the login: see whether the role exists and may log in from here (`pg_hba.conf`)",
        ),
        &SqlState::INVALID_CATALOG_NAME => (
            Fault::Invalid,
            "PostgreSQL has no such database: correct the path of the URL, or create the database",
        ),
        &SqlState::INSUFFICIENT_PRIVILEGE => (
            Fault::Denied,
            "the role lacks a permission: grant what `tenure schema` lists for this layout",
        ),
        &SqlState::INVALID_SCHEMA_NAME => (
            Fault::Store,
            "the schema is not there: create it, or name another with `schema`",
        ),
        &SqlState::UNDEFINED_TABLE => (
            Fault::Store,
            "the table of locks is not there: create it with `tenure schema --apply`, or name it with `table` and `schema`",
        ),
        &SqlState::UNDEFINED_COLUMN | &SqlState::DATATYPE_MISMATCH | &SqlState::NOT_NULL_VIOLATION => (
            Fault::Store,
            "the table does not have the columns of this layout: compare it with what `tenure schema` prints",
        ),
        &SqlState::READ_ONLY_SQL_TRANSACTION => (
            Fault::Unavailable,
            "the server or the role is read-only: name the primary server, and see the role's `default_transaction_read_only`",
        ),
        &SqlState::TOO_MANY_CONNECTIONS | &SqlState::CONFIGURATION_LIMIT_EXCEEDED => (
            Fault::Unavailable,
            "PostgreSQL has too many connections: lower `connections` of its clients, raise `max_connections`, or use a pooler",
        ),
        &SqlState::QUERY_CANCELED => (
            Fault::Unavailable,
            "another session, or the role's `statement_timeout`, has cancelled the statement",
        ),
        // The next connection prepares its statements for the table as it is.
        &SqlState::FEATURE_NOT_SUPPORTED if refusal.routine() == Some("RevalidateCachedQuery") => (
            Fault::Unavailable,
            "the table's columns have changed: the client connects again",
        ),
        &SqlState::CANNOT_CONNECT_NOW => (
            Fault::Unavailable,
            "PostgreSQL is starting up or shutting down: try again",
        ),
        &SqlState::ADMIN_SHUTDOWN | &SqlState::CRASH_SHUTDOWN => (
            Fault::Unavailable,
            "PostgreSQL has ended this connection: the client connects again",
        ),
        &SqlState::DISK_FULL => (Fault::Store, "PostgreSQL's disk is full: free some space"),
        &SqlState::STRING_DATA_RIGHT_TRUNCATION => (
            Fault::Limit,
            "the key or the holder's name is longer than the table's column: use a shorter key",
        ),
        // PgBouncer answers so.
        &SqlState::PROTOCOL_VIOLATION | &SqlState::CONNECTION_EXCEPTION | &SqlState::CONNECTION_FAILURE => (
            Fault::Unavailable,
            "PostgreSQL, or a pooler before it, refuses the connection",
        ),
        _ if matches!(refusal.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) => {
            (Fault::Unavailable, "PostgreSQL has ended the connection")
        }
        _ => (Fault::Store, "PostgreSQL refuses the statement"),
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

pub(super) fn unreachable(address: &str, error: &dyn Display) -> BackendError {
    let message = format!("PostgreSQL at {address} cannot be reached: see whether it runs there");
    BackendError::because(Fault::Unavailable, Effect::None, message, error.to_string())
}

pub(super) fn not_writable(address: &str) -> BackendError {
    let message = format!(
        "no server of {address} accepts writes: each is a standby, or the role may only read; name the primary server, or \
         see the role's `default_transaction_read_only`"
    );
    BackendError::new(Fault::Unavailable, Effect::None, message)
}
