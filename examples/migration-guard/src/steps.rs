//! Migration steps, which are SQL files, and a table of the applied steps.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure::FencingToken;

pub(crate) struct Database(Connection);

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, fence INTEGER NOT NULL)";

/// Records a step, unless a migrator with a greater token has recorded one. Begins the step's transaction.
const NOTE: &str = "INSERT INTO migrations (name, fence)
    SELECT ?1, ?2 WHERE ?2 >= (SELECT coalesce(max(fence), 0) FROM migrations)";

impl Database {
    pub(crate) fn open(path: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(60))?;
        connection.execute_batch(SCHEMA)?;
        Ok(Database(connection))
    }

    pub(crate) fn has(&self, name: &str) -> rusqlite::Result<bool> {
        self.0
            .prepare("SELECT 1 FROM migrations WHERE name = ?1")?
            .exists([name])
    }

    /// Applies and records a step in one transaction, so a migrator that dies leaves no half-applied step.
    pub(crate) fn apply(
        &self,
        name: &str,
        sql: &str,
        token: Option<FencingToken>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let fence = token.map_or(0, FencingToken::as_i64);
        let step = self.0.unchecked_transaction()?;
        if step.execute(NOTE, params![name, fence])? == 0 {
            return Err(format!("{name}: a later migrator has taken over").into());
        }
        step.execute_batch(sql)?;
        Ok(step.commit()?)
    }
}

/// The SQL files in a folder, in the order of their names.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: io::Result<Vec<_>> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let mut files = entries?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    Ok(files)
}

pub(crate) fn name(file: &Path) -> String {
    file.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
