//! The driver's requests on one connection, and what the server's rows mean.

use std::time::Duration;

use super::session::PgSession;
use super::{examine, statements, table};
use crate::lease_rows::{Dialect, LeaseSession, Outcome, Row, Statement, Statements, Taken, Values, Widths};
use crate::server::Config;
use crate::server::error::{Failure, unexpected_reply};
use crate::server::findings::{Check, Facts};

impl LeaseSession for PgSession {
    const CHECKS: &'static [Check] = &examine::CHECKS;

    fn dialect(config: &Config) -> Dialect {
        statements::dialect(config)
    }

    async fn check(&mut self, config: &Config) -> Result<Widths, Failure> {
        table::check(self, config).await
    }

    async fn run(&mut self, statement: &Statement, values: &Values<'_>) -> Result<Outcome, Failure> {
        let (rows, changed) = self.raw(statement, values).await?;
        let rows: Result<Vec<Row>, _> = rows.iter().map(row).collect();
        let rows = rows.map_err(|_| unexpected_reply())?;
        Ok(Outcome { changed, rows })
    }

    async fn take(&mut self, statements: &Statements, values: &Values<'_>) -> Result<Taken, Failure> {
        let (rows, _) = self.raw(&statements.take, values).await?;
        let answer = rows.first().ok_or_else(unexpected_reply)?;
        let (taken, now) = taken(answer, values).map_err(|_| unexpected_reply())?;
        self.learn(now);
        Ok(taken)
    }

    async fn facts(&mut self, config: &Config, _: &Statements) -> Result<Facts, Failure> {
        examine::facts(self, config).await
    }
}

/// Decodes the answer to a statement that takes a row, and the server's time.
fn taken(answer: &tokio_postgres::Row, values: &Values<'_>) -> Result<(Taken, i64), tokio_postgres::Error> {
    let now: i64 = answer.try_get("now")?;
    if answer.try_get::<_, i64>("granted")? > 0 {
        return Ok((Taken::Granted(answer.try_get("last")?), now));
    }
    let key: Option<&str> = answer.try_get("key")?;
    let before = key.map(|_| row(answer)).transpose()?;
    let refused = Taken::refused(before.as_ref(), values.id, now >= values.until);
    Ok((refused, now))
}

/// Decodes a lock's row.
fn row(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    let left: Option<i64> = row.try_get("left_us")?;
    Ok(Row {
        key: row.try_get("key")?,
        holder: row.try_get("holder")?,
        token: row.try_get("token")?,
        is_held: row.try_get::<_, Option<bool>>("held")?.unwrap_or_default(),
        left: left.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or_default())),
    })
}
