//! Access to the database through sqlx. `src/client.rs` of `fenced-write` does the same with rusqlite.

use std::error::Error;
use std::path::Path;

use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::runtime::Runtime;

use crate::value::Value;

/// A pool of connections to a SQLite file, and a tokio runtime for it, because the rest of this example is
/// synchronous.
#[derive(Debug)]
pub(crate) struct Database {
    pool: SqlitePool,
    runtime: Runtime,
}

impl Database {
    pub(crate) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        let runtime = Runtime::new()?;
        let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
        let pool = runtime.block_on(SqlitePool::connect_with(options))?;
        Ok(Database { pool, runtime })
    }

    /// Runs a statement. Returns the number of rows that it wrote.
    pub(crate) fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, Box<dyn Error>> {
        // sqlx wants a promise that SQL built at run time is safe: it contains no values, and its names are checked.
        let mut query = sqlx::query(AssertSqlSafe(sql.to_owned()));
        for value in values {
            query = match *value {
                Value::Number(number) => query.bind(number),
                Value::Text(text) => query.bind(text),
            };
        }
        Ok(self.runtime.block_on(query.execute(&self.pool))?.rows_affected())
    }

    pub(crate) fn number(&self, sql: &str) -> Result<i64, Box<dyn Error>> {
        let query = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()));
        Ok(self.runtime.block_on(query.fetch_one(&self.pool))?)
    }
}
