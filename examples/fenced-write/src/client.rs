//! Access to the database through rusqlite. `sqlx/src/client.rs` does the same with sqlx.

use std::error::Error;
use std::path::Path;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use crate::value::Value;

#[derive(Debug)]
pub(crate) struct Database(Connection);

impl Database {
    pub(crate) fn open(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Database(Connection::open(path)?))
    }

    /// Runs a statement. Returns the number of rows that it wrote.
    pub(crate) fn execute(&self, sql: &str, values: &[Value]) -> Result<u64, Box<dyn Error>> {
        Ok(self.0.execute(sql, params_from_iter(values))? as u64)
    }

    pub(crate) fn number(&self, sql: &str) -> Result<i64, Box<dyn Error>> {
        Ok(self.0.query_row(sql, [], |row| row.get(0))?)
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Number(number) => ToSqlOutput::from(*number),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}
