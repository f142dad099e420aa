//! What the errors of MySQL and MariaDB mean for the locks, and what to do about them.

use std::io;

use mysql_async::{DriverError, Error, IoError, ServerError};
use tenure_backend::{BackendError, Effect, Fault};

use crate::server::config::Place;
use crate::server::error::{Failure, Refusal, connection_broke, no_tls, offers_no_tls, unreachable};

/// Another session is at the row: a wait that was too long or not allowed.
const BUSY: u16 = 1205;

/// The statement was undone, which tells nothing of the row: a deadlock, which may be about the gap between two keys, an
/// automatic number that another session draws, and a row or a definition that has changed since it was read.
const REPEAT: [u16; 4] = [1213, 1467, 1020, 1615];

/// The statement may have been committed before the server ended it: a shutdown, a kill of the session or of the statement, a
/// time limit of the server, an error of the commit or of a disk, and connections that the server has given up.
const UNSURE: [u16; 15] = [
    1053, 1317, 1927, 1969, 3024, 4031, 1180, 3, 1026, 1152, 1158, 1159, 1160, 1161, 1184,
];

/// The failure of a statement. The server undoes a statement that it refuses, so a refusal has no effect.
pub(super) fn failure(error: &Error) -> Failure {
    let Error::Server(refusal) = error else {
        return connection_broke(cause_of(error)).into();
    };
    match refusal.code {
        BUSY => return Failure::Busy,
        code if REPEAT.contains(&code) => return Failure::Repeat,
        _ => {}
    }
    let effect = match UNSURE.contains(&refusal.code) {
        true => Effect::Unknown,
        false => Effect::None,
    };
    explain(refusal.code).into_error(effect, cause(refusal)).into()
}

/// The failure to read a row, after another statement that may have taken it.
pub(super) fn unconfirmed(failure: Failure) -> Failure {
    let error = failure.into_error();
    let message = "the server did not confirm that it has granted the lock";
    BackendError::because(error.fault(), Effect::Unknown, message, error).into()
}

/// The error of an attempt to connect.
pub(super) fn refused_login(error: &Error, address: &Place) -> BackendError {
    let why = cause_of(error);
    match error {
        Error::Server(refusal) => explain(refusal.code).into_error(Effect::None, why),
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            let cure = "set `ssl_cert` and `ssl_key` there, or write `ssl-mode=preferred`";
            offers_no_tls(address, cure, why)
        }
        Error::Driver(
            DriverError::UnknownAuthPlugin { .. }
            | DriverError::MysqlOldPasswordDisabled
            | DriverError::CleartextPluginDisabled,
        ) => {
            let message = "this user logs in by a method that Tenure does not know: let it use `mysql_native_password` or \
                           `caching_sha2_password`";
            BackendError::because(Fault::Unsupported, Effect::None, message, why)
        }
        error if is_tls(error) => no_tls(address, why),
        _ => unreachable(address, why),
    }
}

/// Returns whether an attempt to connect has found no server at the address, or the connection broke.
pub(super) fn is_unreachable(error: &Error) -> bool {
    matches!(error, Error::Io(_)) && !is_tls(error)
}

/// rustls reports its own errors, and those of the certificates, as invalid data.
fn is_tls(error: &Error) -> bool {
    match error {
        Error::Io(IoError::Io(error)) => error.kind() == io::ErrorKind::InvalidData,
        #[cfg(feature = "tls")]
        Error::Io(IoError::Tls(_)) => true,
        _ => false,
    }
}

/// The server's own words.
fn cause(refusal: &ServerError) -> String {
    format!("{} ({})", refusal.message, refusal.code)
}

fn cause_of(error: &Error) -> String {
    match error {
        Error::Server(refusal) => cause(refusal),
        Error::Io(IoError::Io(error)) => error.to_string(),
        Error::Driver(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn explain(code: u16) -> Refusal {
    match code {
        1045 | 1698 => Refusal::denied(
            "the server refuses the user or its password: correct them in the URL or the password file, and see from which \
             hosts, and whether with TLS alone, the user may log in",
        ),
        1130 => Refusal::denied(
            "the server accepts no login from this host: create the user for it, as `'user'@'host'`",
        ),
        1129 => Refusal::unavailable(
            "the server has blocked this host after connections that broke: `FLUSH HOSTS` there, and see what breaks them",
        ),
        3159 | 4151 => {
            Refusal::denied("the server accepts encrypted connections only: write `ssl-mode=required`")
        }
        1049 => Refusal::NO_DATABASE,
        1044 => Refusal::denied(
            "the user may not use this database, or there is none of this name: correct the path of the URL, or grant \
             what `tenure schema` lists for this layout",
        ),
        1142 | 1143 | 1227 | 1370 => Refusal::NO_PERMISSION,
        1146 => Refusal::NO_TABLE,
        1054 | 1048 | 1364 | 1366 => Refusal::OTHER_COLUMNS,
        1406 => Refusal::TOO_LONG,
        1290 | 1792 | 1836 => Refusal::unavailable("the server is read-only: name the primary server"),
        1040 | 1203 | 1226 | 1461 => Refusal::unavailable(
            "the server has too many connections or prepared statements: lower `connections` of its clients, or raise \
             `max_connections`, the user's own limit, or `max_prepared_stmt_count`",
        ),
        1053 | 1927 | 4031 => Refusal::SESSION_ENDED,
        1317 | 1969 | 3024 => Refusal::unavailable(
            "the server has ended the statement: see who killed it, and the server's `max_statement_time`",
        ),
        1047 => {
            Refusal::unavailable("the server has lost its cluster, so it carries out no statement: try again")
        }
        1152 | 1158 | 1159 | 1160 | 1161 | 1184 | 9001 => Refusal::CONNECTION_LOST,
        3 | 1021 | 1026 | 1114 => Refusal::DISK_FULL,
        1298 => Refusal::invalid(
            "the server does not know this time zone: write an offset such as `+00:00`, or load its table of time zones",
        ),
        1665 => Refusal::store(
            "the server's binary log takes whole rows or no changes: set `binlog_format` to `ROW` or `MIXED` there",
        ),
        _ => Refusal::OTHER,
    }
}

/// Error for a server that cuts long texts, so that two long keys would be one lock.
pub(super) fn weak_sql_mode() -> BackendError {
    let message = "the server cuts texts that are too long for a column, so two long keys would be one lock: add \
                   `STRICT_TRANS_TABLES` to its `sql_mode`";
    BackendError::new(Fault::Store, Effect::None, message)
}

/// Error for a server whose clock stands still while a statement waits, so that a lease could be placed after its end.
pub(super) fn still_clock() -> BackendError {
    let message = "the server's SYSDATE() returns the time at which the statement began, so a statement that waits would \
                   read a wrong time: start the server without `--sysdate-is-now`";
    BackendError::new(Fault::Store, Effect::None, message)
}
