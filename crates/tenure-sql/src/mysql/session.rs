//! One connection, on which statements run one after the other.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Error, Params, from_row_opt};
use tenure_backend::{Clock, ServerClock};

use super::error::failure;
use crate::lease_rows::{Row, Statement, Statements, Value, Values};
use crate::server::dial::Session;
use crate::server::error::{Failure, unexpected_reply};

/// A connection to a server that accepts writes.
///
/// Dropping it while a statement is under way closes the socket. The server may still carry the statement out.
pub(crate) struct MySqlSession {
    pub(super) conn: Conn,
    pub(super) server_clock: ServerClock,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) is_mariadb: bool,
    pub(super) is_encrypted: bool,
}

/// The error for a column that may not be NULL. The key of a request that comes too late is NULL.
const KEY_IS_NULL: u16 = 1048;

/// The columns that the statements call `row`.
type Columns = (
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    i64,
);

/// A lock's row, unless it is missing, and the server's time in microseconds since 1970.
type Seen = (Option<Row>, i64);

impl Session for MySqlSession {
    /// Nothing reads from the connection between two statements. So if the server closes it, only the next statement
    /// notices, and its outcome is unknown.
    fn is_closed(&self) -> bool {
        self.conn.is_disconnected()
    }
}

impl MySqlSession {
    /// Returns whether the server knows `INSERT … RETURNING`.
    pub(super) fn returns_rows(&self) -> bool {
        self.is_mariadb && self.conn.server_version() >= (10, 5, 0)
    }

    /// Runs a query, and decodes the rows that it returns.
    pub(super) async fn ask<T: FromRow>(
        &mut self,
        sql: &str,
        params: Vec<mysql_async::Value>,
    ) -> Result<Vec<T>, Failure> {
        let rows = self.conn.exec(sql, Params::Positional(params)).await;
        decode(rows.map_err(|error| failure(&error))?)
    }

    async fn exec(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<mysql_async::Row>, Error> {
        let params = statement.bind(values).into_iter().map(|value| match value {
            Value::Text(text) => text.into(),
            Value::Number(number) => number.into(),
        });
        self.conn
            .exec(&*statement.sql, Params::Positional(params.collect()))
            .await
    }

    /// Decodes locks' rows, and learns the server's time from them.
    fn seen(&self, rows: Result<Vec<mysql_async::Row>, Error>) -> Result<Vec<Seen>, Failure> {
        let rows = decode(rows.map_err(|error| failure(&error))?)?;
        let rows: Vec<Seen> = rows.into_iter().map(seen).collect();
        if let Some((_, now)) = rows.last() {
            self.server_clock.learn(now.unsigned_abs(), self.clock.now());
        }
        Ok(rows)
    }

    pub(super) async fn rows(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Vec<Seen>, Failure> {
        let rows = self.exec(statement, values).await;
        self.seen(rows)
    }

    /// Reads the row of `values.key`.
    pub(super) async fn look(
        &mut self,
        statements: &Statements,
        values: &Values<'_>,
    ) -> Result<Seen, Failure> {
        let seen = self.rows(&statements.look, values).await?.pop();
        Ok(seen.ok_or_else(unexpected_reply)?)
    }

    /// Inserts the row of `values.key`, if the request does not come too late. Returns what MariaDB returns of the row; MySQL
    /// returns nothing.
    pub(super) async fn insert(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Option<Seen>, Failure> {
        match self.exec(statement, values).await {
            Err(Error::Server(refusal)) if refusal.code == KEY_IS_NULL => Ok(None),
            inserted => Ok(self.seen(inserted)?.pop()),
        }
    }
}

fn decode<T: FromRow>(rows: Vec<mysql_async::Row>) -> Result<Vec<T>, Failure> {
    let rows = rows.into_iter().map(from_row_opt);
    Ok(rows.collect::<Result<_, _>>().map_err(|_| unexpected_reply())?)
}

fn seen((key, holder, token, is_held, left, now): Columns) -> Seen {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let row = key.map(|key| Row {
        key: text(key),
        holder: holder.map(text),
        token,
        is_held: is_held.is_some_and(|is_held| is_held != 0),
        left: left.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or_default())),
    });
    (row, now)
}
