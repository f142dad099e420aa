//! One connection, on which statements run one after the other.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt;
use tenure_backend::{Clock, ServerClock};
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, RowStream};

use super::error::{failure, uncertain};
use crate::lease_rows::{Statement, Value, Values};
use crate::server::dial::Session;
use crate::server::error::Failure;

/// A connection to a server that accepts writes.
pub(crate) struct PgSession {
    pub(super) client: Client,
    pub(super) server_clock: ServerClock,
    pub(super) clock: Arc<dyn Clock>,
    /// A pooler stands between, which may send each statement to another server process: nothing is prepared.
    pub(super) is_pooled: bool,
    pub(super) prepared: HashMap<String, tokio_postgres::Statement>,
    /// The server has reported that a write may not be on its standbys.
    pub(super) warned: Arc<AtomicBool>,
    /// Moves bytes between the client and the socket.
    pub(super) driver: JoinHandle<()>,
}

impl Session for PgSession {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

impl Drop for PgSession {
    fn drop(&mut self) {
        // Closes the socket at once, even if a statement is under way. Never cancels it: a commit that waits for a standby
        // would then report success.
        self.driver.abort();
    }
}

impl PgSession {
    async fn query(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<RowStream, tokio_postgres::Error> {
        let values = statement.bind(values);
        if self.is_pooled {
            let typed = values.iter().map(|value| match value {
                Value::Text(_) => (as_sql(value), Type::TEXT),
                Value::Number(_) => (as_sql(value), Type::INT8),
            });
            return self.client.query_typed_raw(&statement.sql, typed).await;
        }
        if !self.prepared.contains_key(&statement.sql) {
            let prepared = self.client.prepare(&statement.sql).await?;
            self.prepared.insert(statement.sql.clone(), prepared);
        }
        let prepared = &self.prepared[&statement.sql];
        self.client.query_raw(prepared, values.iter().map(as_sql)).await
    }

    /// Runs a statement. Returns the rows of its answer as the server sent them, and the number of changed ones.
    pub(super) async fn raw(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<(Vec<tokio_postgres::Row>, u64), Failure> {
        let answered = async {
            let mut stream = pin!(self.query(statement, values).await?);
            let mut rows = Vec::new();
            while let Some(row) = stream.as_mut().try_next().await? {
                rows.push(row);
            }
            Ok((rows, stream.rows_affected().unwrap_or_default()))
        };
        let answered = answered.await.map_err(|error| failure(&error))?;
        match self.warned.swap(false, Ordering::Relaxed) {
            true => Err(uncertain().into()),
            false => Ok(answered),
        }
    }

    pub(super) fn learn(&self, time: i64) {
        self.server_clock.learn(time.unsigned_abs(), self.clock.now());
    }

    /// Runs a query without preparing it.
    pub(super) async fn ask(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        self.client
            .query_typed(sql, params)
            .await
            .map_err(|error| failure(&error))
    }
}

fn as_sql<'a>(value: &'a Value<'_>) -> &'a (dyn ToSql + Sync) {
    match value {
        Value::Text(text) => text,
        Value::Number(number) => number,
    }
}
