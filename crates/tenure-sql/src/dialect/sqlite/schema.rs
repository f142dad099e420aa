//! How a file is known to be ours before anything is written, and when its tables are made. What they are is in `ddl.rs`.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};
use tenure_backend::{BackendError, Effect, Fault};

use super::busy;
use super::ddl::{self, APPLICATION, FORMAT};
use super::file::{Found, refused};
use super::origin::Origin;
use super::tables::Tables;
use crate::error;
use tenure_backend::harmless;

/// How long the log beside the file may stay: as long as it gets between two checkpoints anyway.
const LOG_BYTES: i64 = 4 << 20;

/// Into how many looks of 5 ms the judgement of a file is spread that another process may be writing.
const LOOKS: u32 = 40;

/// The names of our tables, as `sqlite_schema` has them.
pub(super) const NAMES: [&str; 3] = ["bucket", "claim", "store"];

/// Opens the file and sees to it that it is a sound lock file of this machine. Unless it is, nothing was written.
pub(super) fn open(path: &Path, found: Found, max_bytes: u64) -> Result<Connection, BackendError> {
    if found == Found::Something {
        recognise(path)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sql = |error| error::sqlite(path, error, Effect::None);
    let mut connection = Connection::open_with_flags(path, flags).map_err(sql)?;
    busy::install(&mut connection).map_err(sql)?;
    if connection.is_readonly("main").map_err(sql)? {
        let then = "give this user write access to it and its directory, or choose another file";
        return Err(refused(path, "is read-only", then));
    }
    // Until the file is known to be sound, not even closing it may write to it.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(sql)?;
    if found == Found::Empty {
        make(&mut connection).map_err(sql)?;
    }
    let format = busy::retry(|| format(&connection)).map_err(sql)?;
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
        let cause = harmless(&problem.unwrap_or_default()).into_owned();
        return Err(BackendError::because(Fault::Store, Effect::None, message, cause));
    }
    // Every statement fits the tables, or the file is not ours to change.
    busy::retry(|| Tables::prepare(&connection).map(drop)).map_err(sql)?;
    settle(path, &mut connection)?;
    let page: i64 = connection
        .query_row("PRAGMA page_size", [], |row| row.get(0))
        .map_err(sql)?;
    let pages = i64::try_from(max_bytes).unwrap_or(i64::MAX) / page.max(1);
    let bound = |name, bytes| connection.pragma_update_and_check(None, name, bytes, |_| Ok(()));
    bound("max_page_count", pages).map_err(sql)?;
    // A log that one slow reader made long is cut again.
    bound("journal_size_limit", LOG_BYTES).map_err(sql)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
        .map_err(sql)?;
    Ok(connection)
}

/// Refuses a file that is not ours, by its first page alone, without locking it or writing anything.
///
/// Only SQLite may open it: the program around us may have a database of its own open here, and closing another
/// descriptor would drop its locks. Since nothing is locked, a page that is being written may look damaged: then
/// it is read again.
fn recognise(path: &Path) -> Result<(), BackendError> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("file:{}?immutable=1", encoded(path));
    let read = || -> rusqlite::Result<i64> {
        let connection = Connection::open_with_flags(&uri, flags)?;
        connection.query_row("PRAGMA application_id", [], |row| row.get(0))
    };
    let mut looks = LOOKS;
    let application = loop {
        match read() {
            Err(_) if looks > 0 => {
                looks -= 1;
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

/// A path as URIs of SQLite take it.
fn encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(String::new(), |text, &byte| match plain(byte) {
        true => text + &char::from(byte).to_string(),
        false => text + &format!("%{byte:02X}"),
    })
}

/// Fills an empty file, unless another process was quicker.
fn make(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let tables: i64 = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        transaction.execute_batch(&ddl::statements())?;
    }
    transaction.commit()
}

fn format(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT format FROM store WHERE one = 1", [], |row| row.get(0))
}

/// Makes the file this boot's: claims of another boot are dead, those of another machine are not ours to judge.
fn settle(path: &Path, connection: &mut Connection) -> Result<(), BackendError> {
    let sql = |error| error::sqlite(path, error, Effect::None);
    let here = Origin::here();
    let there = busy::retry(|| origin(connection)).map_err(sql)?;
    if there.machine != here.machine {
        let why = format!(
            "was made on another machine ({}, this is {})",
            harmless(&there.machine),
            harmless(&here.machine)
        );
        let then = "its leases mean nothing here: choose another file, or delete this one if no other machine uses it";
        return Err(refused(path, &why, then));
    }
    if there.boot == here.boot && there.namespace != here.namespace {
        let why = "is used in another time namespace (a container with a clock of its own)";
        return Err(refused(
            path,
            why,
            "share it only between processes whose boot clocks are the same",
        ));
    }
    let journal: String =
        busy::retry(|| connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)))
            .map_err(sql)?;
    if journal != "wal" {
        let why = "is on a file system without shared memory, on which SQLite cannot keep a write-ahead log";
        return Err(refused(path, why, "choose a file on a local disk"));
    }
    if there.boot != here.boot {
        bury(connection, &here).map_err(sql)?;
    }
    Ok(())
}

/// The origin that is written in the file.
pub(super) fn origin(connection: &Connection) -> rusqlite::Result<Origin> {
    connection.query_row(
        "SELECT boot, machine, namespace FROM store WHERE one = 1",
        [],
        |row| {
            Ok(Origin {
                boot: row.get(0)?,
                machine: row.get(1)?,
                namespace: row.get(2)?,
            })
        },
    )
}

/// Another boot: all claims are dead, unless another process has seen to that and claims are made again. Tokens
/// stay, and so rise.
fn bury(connection: &mut Connection, here: &Origin) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if origin(&transaction)?.boot != here.boot {
        transaction.execute("DELETE FROM claim", [])?;
        let set = "UPDATE store SET boot = ?1, namespace = ?2 WHERE one = 1";
        transaction.execute(set, (&here.boot, &here.namespace))?;
    }
    transaction.commit()
}
