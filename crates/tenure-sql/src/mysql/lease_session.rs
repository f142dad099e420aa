//! The driver's requests on one connection.

use super::error::unconfirmed;
use super::session::MySqlSession;
use super::{examine, statements, table};
use crate::lease_rows::{Dialect, LeaseSession, Outcome, Statement, Statements, Taken, Values, Widths};
use crate::server::Config;
use crate::server::error::Failure;
use crate::server::findings::{Check, Facts};

impl LeaseSession for MySqlSession {
    const CHECKS: &'static [Check] = &examine::CHECKS;

    fn dialect(config: &Config) -> Dialect {
        statements::dialect(config)
    }

    async fn check(&mut self, config: &Config) -> Result<Widths, Failure> {
        table::check(self, config).await
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

    async fn facts(&mut self, _: &Config, statements: &Statements) -> Result<Facts, Failure> {
        examine::facts(self, statements).await
    }
}
