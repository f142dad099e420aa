//! Migration steps, which are SQL files, and a table of the applied steps.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure::FencingToken;
use tokio_postgres::{Client, NoTls};

/// The database to migrate.
pub(crate) enum Database {
    Sqlite(Connection),
    Postgres(Client),
}

const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, fence BIGINT NOT NULL)";

/// Begins a step, after the end of the step that another migrator may be in. On PostgreSQL the server ends the step of a
/// migrator that was paused in it.
const BEGIN_SQLITE: &str = "BEGIN IMMEDIATE";
const BEGIN_POSTGRES: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '5s';
    LOCK TABLE migrations IN EXCLUSIVE MODE";

/// Records a step, unless it is recorded, or a migrator with a greater token has recorded one.
const NOTE: &str = "INSERT INTO migrations (name, fence)
    SELECT $1, $2 WHERE $2 >= (SELECT coalesce(max(fence), 0) FROM migrations) ON CONFLICT (name) DO NOTHING";

const HAS: &str = "SELECT 1 FROM migrations WHERE name = $1";

impl Database {
    /// Opens a SQLite file, or connects to `postgres://...`. A real replica would connect with TLS.
    pub(crate) async fn open(place: &str) -> Result<Self, Box<dyn Error>> {
        if !is_postgres(place) {
            let connection = Connection::open(place)?;
            connection.busy_timeout(Duration::from_secs(60))?;
            return Ok(Database::Sqlite(connection));
        }
        let (client, connection) = tokio_postgres::connect(place, NoTls).await?;
        // It ends with the client, whose calls report its errors.
        tokio::spawn(connection);
        Ok(Database::Postgres(client))
    }

    /// Makes the table of the applied steps, if it is missing.
    pub(crate) async fn prepare(&self) -> Result<(), Box<dyn Error>> {
        self.run(SCHEMA).await
    }

    pub(crate) async fn has(&self, name: &str) -> Result<bool, Box<dyn Error>> {
        Ok(match self {
            Database::Sqlite(connection) => connection.prepare(HAS)?.exists([name])?,
            Database::Postgres(client) => client.query_opt(HAS, &[&name]).await?.is_some(),
        })
    }

    /// Applies and records a step in one transaction, so a migrator that dies leaves no half-applied step.
    pub(crate) async fn apply(
        &self,
        name: &str,
        sql: &str,
        token: Option<FencingToken>,
    ) -> Result<(), Box<dyn Error>> {
        let fence = token.map_or(0, FencingToken::as_i64);
        self.run(match self {
            Database::Sqlite(_) => BEGIN_SQLITE,
            Database::Postgres(_) => BEGIN_POSTGRES,
        })
        .await?;
        let applied = self.apply_in_transaction(name, sql, fence).await;
        if applied.is_err() {
            // If this fails too, the end of the process ends the transaction.
            let _ = self.run("ROLLBACK").await;
        }
        applied
    }

    async fn apply_in_transaction(&self, name: &str, sql: &str, fence: i64) -> Result<(), Box<dyn Error>> {
        let is_noted = match self {
            Database::Sqlite(connection) => connection.execute(NOTE, params![name, fence])? == 1,
            Database::Postgres(client) => client.execute(NOTE, &[&name, &fence]).await? == 1,
        };
        if is_noted {
            self.run(sql).await?;
        } else if !self.has(name).await? {
            return Err(format!("{name}: a later migrator has taken over").into());
        }
        self.run("COMMIT").await
    }

    async fn run(&self, script: &str) -> Result<(), Box<dyn Error>> {
        match self {
            Database::Sqlite(connection) => connection.execute_batch(script)?,
            Database::Postgres(client) => client.batch_execute(script).await?,
        }
        Ok(())
    }
}

pub(crate) fn is_postgres(place: &str) -> bool {
    place.starts_with("postgres://") || place.starts_with("postgresql://")
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
