//! Turns SQLite's errors into [`BackendError`]s, which say what is wrong and what to do.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::path::Path;

use rusqlite::ErrorCode;
use tenure_backend::{BackendError, Effect, Fault, escape_control};

use super::access;
use super::names::display_path;

/// Converts an error of SQLite. `effect` says whether the failed statement may have changed the file.
pub(super) fn sqlite(path: &Path, error: rusqlite::Error, effect: Effect) -> BackendError {
    let file = display_path(path);
    let store = |message: String| (Fault::Store, message);
    let code = error.sqlite_error_code();
    let may_be_denied = matches!(
        code,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen)
    );
    // Says more than SQLite's error.
    if let Some((fault, message)) = may_be_denied.then(|| access::obstacle(path)).flatten() {
        return BackendError::new(fault, effect, message);
    }
    let (fault, message) = match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => (
            Fault::Unavailable,
            format!("the lock file {file} is in use by other processes all the time: try again"),
        ),
        Some(ErrorCode::DiskFull) => store(format!(
            "the lock file {file} cannot grow, since its disk is full or it has reached its own limit: free some \
             space; until then held locks end with their leases"
        )),
        Some(ErrorCode::ReadOnly) => {
            let message = format!("the lock file {file} cannot be written");
            let why = "it may be marked as immutable: choose another file";
            return BackendError::because(Fault::Store, effect, message, Unexplained(why));
        }
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => (
            Fault::Denied,
            format!("this user may not use the lock file {file}: give it access, or choose another file"),
        ),
        Some(ErrorCode::CannotOpen) => {
            let message = format!(
                "the lock file {file} or the files beside it (-wal, -shm) cannot be opened or created"
            );
            let why = "this process may have used up its file descriptors, or the disk its inodes";
            return BackendError::because(Fault::Store, effect, message, Unexplained(why));
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => store(damaged(path)),
        // All statements of Tenure are correct, so another program must have changed the tables or rows.
        Some(ErrorCode::Unknown) | None => store(format!(
            "the tables of {file} are not those of a lock file, so another program made or changed it: \
             choose another file"
        )),
        Some(ErrorCode::SystemIoFailure) => store(format!(
            "reading or writing the lock file {file} failed: check its disk, which may be full"
        )),
        _ => store(format!(
            "SQLite could not work on the lock file {file}: see the cause below"
        )),
    };
    // SQLite's message may contain the name of the file, so it is escaped too.
    match escape_control(&error.to_string()) {
        Cow::Borrowed(_) => BackendError::because(fault, effect, message, error),
        Cow::Owned(text) => BackendError::because(fault, effect, message, text),
    }
}

/// Cause of an error of SQLite for which the permissions of the files show no reason.
#[derive(Debug)]
struct Unexplained(&'static str);

impl fmt::Display for Unexplained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for Unexplained {}

/// Returns whether SQLite could not open or write a file, although its permissions allow it by now. Another process may
/// just have created the file, and set its mode a moment later.
pub(super) fn may_have_been_new(error: &BackendError) -> bool {
    error.source().is_some_and(|source| source.is::<Unexplained>())
}

pub(super) fn damaged(path: &Path) -> String {
    format!(
        "{} is damaged, or no SQLite database; it was left as it is. Choose another file, or end everything that \
         uses this one and move it away: locks then start afresh",
        display_path(path)
    )
}
