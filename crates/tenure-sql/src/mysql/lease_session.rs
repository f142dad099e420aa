//! The driver's requests on one connection.

use mysql_async::prelude::Queryable;
use tenure_backend::{Finding, ServerClock};

use super::error::{failure, unconfirmed};
use super::session::MySqlSession;
use super::{examine, statements, table};
use crate::lease_rows::{LeaseSession, Outcome, Statement, Statements, Taken, Values, Widths};
use crate::server::Config;
use crate::server::error::Failure;

impl LeaseSession for MySqlSession {
    fn statements(&self, config: &Config) -> Statements {
        statements::statements(config, self.returns_rows())
    }

    async fn check(&mut self, config: &Config) -> Result<Widths, Failure> {
        table::check(self, config).await
    }

    async fn script(&mut self, script: &str) -> Result<(), Failure> {
        let ran = self.conn.query_drop(script).await;
        ran.map_err(|error| failure(&error))
    }

    fn clock(&self) -> &ServerClock {
        &self.server_clock
    }

    async fn run(&mut self, statement: &Statement, values: &Values<'_>) -> Result<Outcome, Failure> {
        let rows = self.rows(statement, values).await?;
        Ok(Outcome {
            changed: self.conn.affected_rows(),
            rows: rows.into_iter().filter_map(|(row, _)| row).collect(),
        })
    }

    async fn take(&mut self, statements: &Statements, values: &Values<'_>) -> Result<Taken, Failure> {
        if statements.insert.is_some() {
            self.rows(&statements.take, values).await?;
            let token = self.conn.last_insert_id().and_then(|token| token.try_into().ok());
            // The statement finds the row only if it takes it.
            if self.conn.affected_rows() > 0 && token.is_some() {
                return Ok(Taken::Granted(token));
            }
        }
        let (row, now) = self.look(statements, values).await?;
        let is_free = row
            .as_ref()
            .is_none_or(|row| statements.insert.is_none() && !row.is_held && !row.is_of(values.id));
        if !is_free || now >= values.until {
            return Ok(Taken::refused(row.as_ref(), values.id, now >= values.until));
        }
        let insert = statements.insert.as_ref().unwrap_or(&statements.take);
        let (row, now) = match self.insert(insert, values).await? {
            Some(seen) => seen,
            None => self.look(statements, values).await.map_err(unconfirmed)?,
        };
        // The row tells who holds it. Never its count: a proxy may count rows that were found and not changed. If it is this
        // claim, the lease began after the row looked free.
        Ok(match row {
            Some(row) if row.is_held && row.is_of(values.id) => Taken::Granted(row.token),
            row => Taken::refused(row.as_ref(), values.id, now >= values.until),
        })
    }

    async fn examine(&mut self, config: &Config) -> Result<Vec<Finding>, Failure> {
        examine::examine(self, config).await
    }
}
