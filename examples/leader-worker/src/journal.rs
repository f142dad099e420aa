//! The journal of finished tasks: a table that refuses the writes of former leaders.

use std::time::Duration;

use rusqlite::Connection;
use tenure::FencingToken;

pub(crate) struct Journal(Connection);

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS journal (task TEXT PRIMARY KEY, fence INTEGER NOT NULL, worker INTEGER NOT NULL);";

/// Checks the token and writes in one statement, so nothing can happen in between. A task done again replaces its row.
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

    /// Records a task. Returns `false`, without an effect, if a leader with a greater token has recorded one.
    ///
    /// Blocks the thread. That delays no renewal, because renewals run on tokio's worker threads, and the task of `main`
    /// runs on the main thread.
    pub(crate) fn record(&self, task: &str, token: Option<FencingToken>) -> rusqlite::Result<bool> {
        let fence = token.map_or(0, FencingToken::as_i64);
        let rows = self.0.execute(RECORD, (task, fence, std::process::id()))?;
        Ok(rows == 1)
    }
}
