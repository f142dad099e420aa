//! The baseline for SQLite: one statement to lock a key and one to free it, with the journal and sync settings of
//! Tenure's store.
//!
//! Statements run on the caller's thread, so a slow disk blocks a thread of the runtime. This promises less than
//! Tenure: no renewal and no expiry (a dead holder keeps its key), no token, no wake-up and no order between
//! processes. `waiting` implements the wait.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::Mutex;

use super::waiting::BareStore;
use crate::Fallible;

/// Pause between two tries while another process has the file locked, and number of tries. Tenure's store begins with
/// the same pause.
const LOOK_EVERY: Duration = Duration::from_micros(100);
const LOOKS: i32 = 50_000;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS held (key TEXT PRIMARY KEY, holder INTEGER) WITHOUT ROWID";
const TAKE: &str = "INSERT OR IGNORE INTO held VALUES (?1, ?2)";
const FREE: &str = "DELETE FROM held WHERE key = ?1 AND holder = ?2";

/// The one connection of a process, as in Tenure's store. Statements take turns on it.
pub(crate) struct Statements(Mutex<LockFile>);

struct LockFile {
    connection: Connection,
    /// True while `PRAGMA synchronous` is `FULL`: each commit is synced to the disk.
    durable: bool,
}

impl Statements {
    /// Opens the file and creates its table.
    pub(crate) fn open(path: &Path) -> Fallible<Self> {
        let mut connection = Connection::open(path)?;
        connection.busy_handler(Some(look_again as fn(i32) -> bool))?;
        let journal: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if journal != "wal" {
            return Err(format!("SQLite keeps no write-ahead log at {}", path.display()).into());
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute(TABLE, [])?;
        let durable = true;
        Ok(Statements(Mutex::new(LockFile { connection, durable })))
    }
}

fn look_again(looks: i32) -> bool {
    std::thread::sleep(LOOK_EVERY);
    looks < LOOKS
}

impl LockFile {
    /// Runs a statement. Returns whether it changed a row. If `durable`, as for grants, the commit is synced to the
    /// disk.
    fn run(&mut self, statement: &str, durable: bool, key: &str, holder: i64) -> rusqlite::Result<bool> {
        if self.durable != durable {
            let level = if durable { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.durable = durable;
        }
        let mut statement = self.connection.prepare_cached(statement)?;
        Ok(statement.execute((key, holder))? == 1)
    }
}

impl BareStore for Statements {
    async fn take(&self, key: &str, holder: i64) -> Fallible<bool> {
        Ok(self.0.lock().await.run(TAKE, true, key, holder)?)
    }

    async fn free(&self, key: &str, holder: i64) -> Fallible<bool> {
        Ok(self.0.lock().await.run(FREE, false, key, holder)?)
    }
}
