//! Opens a file if it is a valid lock file, which is checked before the first write. Creates the tables of an empty
//! file.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use tenure_backend::{BackendError, Effect, Fault};

use super::config::Config;
use super::ddl::{self, APPLICATION, FORMAT};
use super::file::{Contents, refused};
use super::origin::Origin;
use super::siblings::sibling;
use super::tables::Tables;
use super::{adopt, busy, connection, error};
use tenure_backend::escape_control;

/// Size in bytes to which SQLite truncates the log after a checkpoint. Between two checkpoints, the log of a busy process
/// usually grows to about this size.
const MAX_WAL_BYTES: i64 = 4 << 20;

/// Number of times an unreadable first page is read again, every 5 ms, because another process may be writing it.
pub(super) const MAX_READS: u32 = 40;

/// Names of the tables in `sqlite_schema`.
pub(super) const TABLE_NAMES: [&str; 3] = ["claim", "store", "token_counter"];

/// Opens the file, and checks that it is an intact lock file of this machine. Creates the tables of an empty file,
/// and converts times that were counted on another clock.
///
/// A file that is refused is not changed: the last check comes before the first write, which may be the change of the
/// journal mode.
pub(super) fn open(
    path: &Path,
    found: Contents,
    config: &Config,
    here: &Origin,
) -> Result<Connection, BackendError> {
    if found == Contents::NonEmpty {
        check_application_id(path)?;
    }
    let has_log = sibling(path, "-wal").exists();
    let sql = |error| error::sqlite(path, error, Effect::None);
    let refuse = |connection, error| {
        connection::close_refused(connection, has_log);
        Err(error)
    };
    let mut connection = connection::open(path)?;
    if found == Contents::Empty {
        create_tables(&mut connection, here).map_err(sql)?;
    }
    let there = match check(path, &connection, here) {
        Ok(checked) => checked,
        Err(error) => return refuse(connection, error),
    };
    if there.offset != here.offset {
        connection::close_refused(connection, has_log);
        adopt::adopt(path, here)?;
        busy::set_deadline(Instant::now(), config.busy_limit);
        connection = connection::open(path)?;
        if let Err(error) = check_clock(path, &connection, here) {
            return refuse(connection, error);
        }
    }
    if enable_wal(path, &connection)? {
        // Without a write-ahead log no connection held a lock on the file, so another process may have converted its
        // times.
        check_clock(path, &connection, here)?;
    }
    set_limits(&connection, config).map_err(sql)?;
    Ok(connection)
}

/// Checks that the file is an intact lock file of this machine, without changing it. Returns the origin of its times.
fn check(path: &Path, connection: &Connection, here: &Origin) -> Result<Origin, BackendError> {
    let sql = |error| error::sqlite(path, error, Effect::None);
    check_pages(path, connection)?;
    busy::retry(|| Tables::new(connection).check()).map_err(sql)?;
    let there = busy::retry(|| adopt::origin(connection)).map_err(sql)?;
    adopt::check_machine(path, &there, here)?;
    Ok(there)
}

/// Checks a file that this user can only read. Refuses a file of another clock too, because only a process that writes can
/// convert its times.
pub(super) fn check_for_reading(
    path: &Path,
    connection: &Connection,
    here: &Origin,
) -> Result<(), BackendError> {
    let there = check(path, connection, here)?;
    adopt::check_clock(path, &there, here)
}

/// Refuses a file of a later version, and a damaged one.
fn check_pages(path: &Path, connection: &Connection) -> Result<(), BackendError> {
    let sql = |error| error::sqlite(path, error, Effect::None);
    let format = busy::retry(|| read_format(connection)).map_err(sql)?;
    if format > FORMAT {
        return Err(refused(
            path,
            "was made by a later version of Tenure",
            "use that version",
        ));
    }
    let problem: Option<String> = busy::retry(|| {
        connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .optional()
    })
    .map_err(sql)?;
    if problem.as_deref() != Some("ok") {
        let message = error::damaged(path);
        let cause = escape_control(&problem.unwrap_or_default()).into_owned();
        return Err(BackendError::because(Fault::Store, Effect::None, message, cause));
    }
    Ok(())
}

/// Refuses a file whose times are counted on another clock. In a file with a write-ahead log, this read takes the shared
/// lock that every open connection holds: from here on, no other process can convert the file's times.
fn check_clock(path: &Path, connection: &Connection, here: &Origin) -> Result<(), BackendError> {
    let there = busy::retry(|| adopt::origin(connection));
    let there = there.map_err(|error| error::sqlite(path, error, Effect::None))?;
    adopt::check_clock(path, &there, here)
}

/// Limits the size of the file and of its log.
fn set_limits(connection: &Connection, config: &Config) -> rusqlite::Result<()> {
    let page: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    let pages = i64::try_from(config.max_bytes).unwrap_or(i64::MAX) / page.max(1);
    let bound = |name, bytes| connection.pragma_update_and_check(None, name, bytes, |_| Ok(()));
    bound("max_page_count", pages)?;
    // A slow reader can make the log long. After a checkpoint has copied the whole log, the next commit shortens it to
    // this size.
    bound("journal_size_limit", MAX_WAL_BYTES)
}

/// Switches the file's journal to a write-ahead log. Returns whether it was not one before.
fn enable_wal(path: &Path, connection: &Connection) -> Result<bool, BackendError> {
    let sql = |error| error::sqlite(path, error, Effect::None);
    let journal = |pragma| connection.query_row(pragma, [], |row| row.get::<_, String>(0));
    if busy::retry(|| journal("PRAGMA journal_mode")).map_err(sql)? == "wal" {
        return Ok(false);
    }
    if busy::retry(|| journal("PRAGMA journal_mode = WAL")).map_err(sql)? != "wal" {
        let why = "is on a file system without shared memory, on which SQLite cannot keep a write-ahead log";
        return Err(refused(path, why, "choose a file on a local disk"));
    }
    Ok(true)
}

/// Refuses a database of another program. Reads the first page, without locking or writing the file.
///
/// The page is read through SQLite, because the application may have a database of its own open at this path, and
/// closing another descriptor would drop its POSIX locks. Without a lock, a page that is being written may look
/// damaged, so a failed read is repeated.
pub(super) fn check_application_id(path: &Path) -> Result<(), BackendError> {
    let read = || -> rusqlite::Result<i64> {
        let connection = connection::open_immutable(path)?;
        connection.query_row("PRAGMA application_id", [], |row| row.get(0))
    };
    let mut reads_left = MAX_READS;
    let application = loop {
        match read() {
            Err(_) if reads_left > 0 => {
                reads_left -= 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            result => break result.map_err(|error| error::sqlite(path, error, Effect::None))?,
        }
    };
    if application == APPLICATION {
        return Ok(());
    }
    let then = "it was left as it is; choose another file";
    Err(refused(path, "is a SQLite database of another program", then))
}

/// Creates the tables in an empty file, unless another process has created them.
fn create_tables(connection: &mut Connection, here: &Origin) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        transaction.execute_batch(&ddl::statements(here))?;
    }
    transaction.commit()
}

/// Reads the version of the file's format.
pub(super) fn read_format(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT format FROM store WHERE id = 1", [], |row| row.get(0))
}
