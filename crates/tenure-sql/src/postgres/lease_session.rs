//! The driver's requests on one connection, and what the server's rows mean.

use std::time::Duration;

use tenure_backend::{Finding, ServerClock};

use super::examine;
use super::session::PgSession;
use crate::lease_rows::{LeaseSession, Outcome, Row, Statement, Statements, Taken, Values};
use crate::server::Config;
use crate::server::error::{Failure, unexpected_reply};

impl LeaseSession for PgSession {
    fn clock(&self) -> &ServerClock {
        &self.server_clock
    }

    async fn run(&mut self, statement: &Statement, values: &Values<'_>) -> Result<Outcome, Failure> {
        let (rows, changed) = self.raw(statement, values).await?;
        let rows = rows
            .iter()
            .map(row)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| unexpected_reply())?;
        Ok(Outcome { changed, rows })
    }

    async fn take(&mut self, statements: &Statements, values: &Values<'_>) -> Result<Taken, Failure> {
        let (rows, _) = self.raw(&statements.take, values).await?;
        let decoded = rows.first().ok_or_else(unexpected_reply).and_then(|answer| {
            let number = |name| answer.try_get::<_, i64>(name).map_err(|_| unexpected_reply());
            let before = answer
                .try_get::<_, Option<&str>>("key")
                .map_err(|_| unexpected_reply())?;
            let before = before
                .map(|_| row(answer))
                .transpose()
                .map_err(|_| unexpected_reply())?;
            let last = answer
                .try_get::<_, Option<i64>>("last")
                .map_err(|_| unexpected_reply())?;
            Ok((number("granted")?, last, number("now")?, before))
        });
        let (granted, last, now, before) = decoded?;
        self.learn(now);
        Ok(match granted {
            0 => Taken::refused(before.as_ref(), values.id, now >= values.until),
            _ => Taken::Granted(last),
        })
    }

    async fn examine(&mut self, config: &Config) -> Result<Vec<Finding>, Failure> {
        examine::examine(self, config).await
    }
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
