//! Opens connections to the lock file, shared with other processes or exclusively. Recognizes versions of SQLite with a
//! bug that can damage the file.

use std::fs;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tenure_backend::{BackendError, Effect};

use super::access::{self, Intent};
use super::busy;
use super::error;
use super::file::refused;
use super::siblings::sibling;

/// Time limit for exclusive access. Short, because the wait delays the opening of a file that other processes keep
/// open.
const EXCLUSIVE_WAIT: Duration = Duration::from_millis(20);

/// Number of prepared statements that a connection caches. This is more than Tenure prepares, so the statements that
/// the check of a file prepares are still in the cache when a request first uses them.
const MAX_STATEMENTS: usize = 32;

/// Length of the log, in pages of the file, at which the first commits of an opened store copy the log to the file: about
/// ten locks taken and freed. The next commit then writes to the start of the log, so the log gets no longer, and a
/// process that opens the file reads little. An SQLite with the bug of
/// [`wal_reset_bug`] does not do this, because copies
/// between the commits of other processes are what can damage the file there.
pub(super) const SHORT_LOG_PAGES: u32 = 64;

/// Number of commits for which an opened store keeps the log as short as that. A program that takes few locks makes no
/// more commits. For a program that makes more, to copy the log so often would take more time than a reader saves.
pub(super) const FIRST_COMMITS: u32 = 8;

/// Length of the log, in pages, at which later commits copy the log to the file. This is SQLite's default.
pub(super) const LONG_LOG_PAGES: u32 = 1000;

/// Longest log in bytes that stays after the last process has closed the file: twice as long as `SHORT_LOG_PAGES`, so
/// that programs which take few locks write to one log in turns, and none deletes it.
const MAX_KEPT_LOG: u64 = 512 << 10;

/// Makes a commit copy the log to the file if the log has at least this many pages.
pub(super) fn copy_log_at(connection: &Connection, pages: u32) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "wal_autocheckpoint", pages, |_| Ok(()))
}

/// Opens the file without a checkpoint on close, so that closing a refused file does not write to it. For a file that
/// is not refused, [`close`] changes the setting: an earlier change would make SQLite prepare its statements again.
pub(super) fn open(path: &Path) -> Result<Connection, BackendError> {
    let sql = |error| error::sqlite(path, error, Effect::None);
    let connection = connect(path).map_err(sql)?;
    if connection.is_readonly("main").map_err(sql)? {
        access::check(path, Intent::Write)?;
        let then = "see whether it is marked as immutable, or choose another file";
        return Err(refused(path, "cannot be opened for writing", then));
    }
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(sql)?;
    Ok(connection)
}

/// Takes SQLite's write lock and releases it. Fails if SQLite has opened the files for reading only.
pub(super) fn check_write_lock(path: &Path, connection: &Connection) -> Result<(), BackendError> {
    match connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK") {
        // Another process writes, which shows nothing about this connection. The first request finds out.
        Err(error) if busy::is_busy(&error) => Ok(()),
        result => result.map_err(|error| error::sqlite(path, error, Effect::None)),
    }
}

/// Opens the file for reading only. Never creates `-shm`.
pub(super) fn open_for_reading(path: &Path) -> rusqlite::Result<Connection> {
    let mut connection = open_read_only(path, "readonly_shm=1")?;
    busy::install(&mut connection)?;
    Ok(connection)
}

/// Opens the file without its log. SQLite takes no lock, and reads no other file.
pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    open_read_only(path, "immutable=1")
}

fn open_read_only(path: &Path, option: &str) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{}?{option}", uri_encode(path)), flags)
}

/// Percent-encodes a path for the URI by which SQLite opens it.
fn uri_encode(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(String::new(), |text, &byte| match plain(byte) {
        true => text + &char::from(byte).to_string(),
        false => text + &format!("%{byte:02X}"),
    })
}

/// Opens the file exclusively. Returns `None` if a connection of any process has the file open with a write-ahead log,
/// or has a lock on a file without one.
///
/// Each connection to a file with a write-ahead log holds a shared lock from its first read until it is closed. In
/// SQLite's exclusive locking mode, the first read takes the exclusive lock, which fails while another connection has
/// a shared one. Without such a log, connections hold locks only during a transaction.
pub(super) fn open_exclusive(path: &Path) -> rusqlite::Result<Option<Connection>> {
    let connection = connect(path)?;
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
    busy::set_deadline(Instant::now(), EXCLUSIVE_WAIT);
    match connection.execute_batch("BEGIN EXCLUSIVE; ROLLBACK") {
        Ok(()) => Ok(Some(connection)),
        Err(error) if busy::is_busy(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Closes a file that is refused, and leaves its folder as it was: if the file had no log, SQLite has created an empty
/// one to read the file, and deletes it here.
pub(super) fn close_refused(connection: Connection, had_log: bool) {
    // If this fails, the empty log stays.
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, had_log);
}

/// Closes the file. A short log stays for the next process that opens the file: to empty and delete the log now, and
/// to create it again then, would take most of the time of a short program, and four of its five syncs. If no other
/// connection has the file open, SQLite moves a longer log into the file and deletes the log.
pub(super) fn close(path: &Path, connection: Connection) {
    let log = fs::metadata(sibling(path, "-wal"));
    let is_short = log.is_ok_and(|log| log.len() <= MAX_KEPT_LOG);
    // If this fails, a longer log stays too.
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, is_short);
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    busy::install(&mut connection)?;
    connection.set_prepared_statement_cache_capacity(MAX_STATEMENTS);
    Ok(connection)
}

/// Describes the bug that can damage a lock file, if this version of SQLite has the bug.
///
/// Up to 3.51.2, a checkpoint that runs while another connection resets the log may omit pages of later commits, and
/// so damage the file: <https://sqlite.org/wal.html#walresetbug>. 3.44.6 and 3.50.7 have the fix too.
pub(super) fn wal_reset_bug(version: i32) -> Option<String> {
    let is_fixed = matches!(version, 3_044_006..3_045_000 | 3_050_007..3_051_000 | 3_051_003..);
    let [major, minor, patch] = [version / 1_000_000, version / 1_000 % 1_000, version % 1_000];
    (!is_fixed).then(|| {
        format!(
            "SQLite {major}.{minor}.{patch} may damage a lock file that several processes use \
             (https://sqlite.org/wal.html#walresetbug)"
        )
    })
}

/// Logs a warning if this SQLite may damage lock files. `warned` limits it to one per process.
pub(super) fn warn_of_bug(version: i32, warned: &Once) {
    if let Some(bug) = wal_reset_bug(version) {
        warned.call_once(|| tracing::warn!("{bug}: use SQLite 3.51.3 or later"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn versions_with_the_wal_reset_bug_are_recognized() {
        for version in [
            3_007_000, 3_040_001, 3_044_005, 3_045_000, 3_050_006, 3_051_000, 3_051_002,
        ] {
            assert!(wal_reset_bug(version).is_some(), "{version}");
        }
        for version in [3_044_006, 3_050_007, 3_051_003, 3_052_000, 3_053_000, 4_000_000] {
            assert_eq!(wal_reset_bug(version), None, "{version}");
        }
        let bug = wal_reset_bug(3_040_001).expect("it is older");
        assert!(bug.starts_with("SQLite 3.40.1 "), "{bug}");
    }

    #[test]
    fn an_old_version_is_reported_once() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let logger = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(Arc::new(log.reopen().expect("it is open")));
        let warnings = || {
            let text = std::fs::read_to_string(log.path());
            text.expect("it is text").lines().count()
        };
        let warned = Once::new();
        tracing::subscriber::with_default(logger.finish(), || {
            warn_of_bug(3_051_003, &warned);
            assert_eq!(warnings(), 0);
            warn_of_bug(3_051_002, &warned);
            warn_of_bug(3_051_002, &warned);
        });
        assert_eq!(warnings(), 1);
    }
}
