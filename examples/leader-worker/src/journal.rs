//! The record of what was done: a table that refuses what past leaders still send.

use std::time::Duration;

use rusqlite::Connection;
use tenure::FencingToken;

/// A table of the tasks that were done.
pub(crate) struct Journal(Connection);

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS journal (task TEXT PRIMARY KEY, fence INTEGER NOT NULL, worker INTEGER NOT NULL);";

/// One statement looks and writes: nothing comes between the two. A task that is done once more replaces itself.
const RECORD: &str = "INSERT INTO journal (task, fence, worker)
    SELECT ?1, ?2, ?3 WHERE ?2 >= (SELECT coalesce(max(fence), 0) FROM journal)
    ON CONFLICT (task) DO UPDATE SET fence = excluded.fence, worker = excluded.worker";

impl Journal {
    pub(crate) fn open(path: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.execute_batch(SCHEMA)?;
        Ok(Journal(connection))
    }

    /// Records a task; `false` if a leader with a greater token has recorded one, and nothing was done.
    ///
    /// It blocks, which the task of `main` may: it is not on a worker thread of the runtime, and so holds up no renewal.
    pub(crate) fn record(&self, task: &str, token: Option<FencingToken>) -> rusqlite::Result<bool> {
        let fence = token.map_or(0, FencingToken::as_i64);
        let rows = self.0.execute(RECORD, (task, fence, std::process::id()))?;
        Ok(rows == 1)
    }
}
