//! Turns SQLite's errors into [`BackendError`]s, which say what is wrong and what to do.

use std::borrow::Cow;
use std::path::Path;

use rusqlite::ErrorCode;
use tenure_backend::{BackendError, Effect, Fault, escape_control};

use crate::display::display_path;

/// Converts an error of SQLite. `effect` says whether the failed statement may have changed the file.
pub(crate) fn sqlite(path: &Path, error: rusqlite::Error, effect: Effect) -> BackendError {
    let file = display_path(path);
    let store = |message: String| (Fault::Store, message);
    let (fault, message) = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => (
            Fault::Unavailable,
            format!("the lock file {file} is in use by other processes all the time: try again"),
        ),
        Some(ErrorCode::DiskFull) => store(format!(
            "the lock file {file} cannot grow, since its disk is full or it has reached its own limit: free some \
             space; until then held locks end with their leases"
        )),
        Some(ErrorCode::ReadOnly) => store(format!(
            "the lock file {file} cannot be written: give this user write access to it and its directory"
        )),
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => (
            Fault::Denied,
            format!("this user may not use the lock file {file}: give it access, or choose another file"),
        ),
        Some(ErrorCode::CannotOpen) => store(format!(
            "the lock file {file} or the files beside it (-wal, -shm) cannot be opened or made: \
             this user needs write access to the directory too, and the process free file descriptors"
        )),
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

pub(crate) fn damaged(path: &Path) -> String {
    format!(
        "{} is damaged, or no SQLite database; it was left as it is. Choose another file, or end everything that \
         uses this one and move it away: locks then start afresh",
        display_path(path)
    )
}
