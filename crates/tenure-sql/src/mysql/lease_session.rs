//! The driver's requests on one connection.

use mysql_async::Error;

use super::error::{failure, unconfirmed};
use super::session::MySqlSession;
use super::{examine, statements, table};
use crate::lease_rows::{Dialect, LeaseSession, Seen, Statements, Taken, Values, Widths, seen};
use crate::server::Config;
use crate::server::error::{Failure, unexpected_reply};
use crate::server::findings::{Check, Facts};

/// The error for a column that may not be NULL. The key of a request that comes too late is NULL.
const KEY_IS_NULL: u16 = 1048;

impl LeaseSession for MySqlSession {
    const CHECKS: &'static [Check] = &examine::CHECKS;

    fn dialect(config: &Config) -> Dialect {
        statements::dialect(config)
    }

    async fn check(&mut self, config: &Config) -> Result<Widths, Failure> {
        table::check(self, config).await
    }

    async fn take(&mut self, statements: &Statements, values: &Values<'_>) -> Result<Taken, Failure> {
        if statements.insert.is_some() {
            let changed = statements.take.run(self, values).await?.changed;
            let token = self.conn.last_insert_id().and_then(|token| token.try_into().ok());
            // The statement finds the row only if it takes it.
            if changed > 0 && token.is_some() {
                return Ok(Taken::Granted(token));
            }
        }
        let (row, now) = look(self, statements, values).await?;
        let is_free = row
            .as_ref()
            .is_none_or(|row| statements.insert.is_none() && !row.is_held && !row.is_of(values.id));
        if !is_free || now >= values.until {
            return Ok(Taken::refused(row.as_ref(), values.id, now >= values.until));
        }
        let insert = statements.insert.as_ref().unwrap_or(&statements.take);
        // MariaDB returns the row, unless the request comes too late.
        let mut inserted = match self.exec(&insert.sql, &insert.bind(values)).await {
            Err(Error::Server(refusal)) if refusal.code == KEY_IS_NULL => Vec::new(),
            inserted => inserted.map_err(|error| failure(&error))?.rows,
        };
        let (row, now) = match inserted.first_mut() {
            Some(returned) => seen(returned)?,
            None => look(self, statements, values).await.map_err(unconfirmed)?,
        };
        // The row tells who holds it. Never its count: a proxy may count rows that were found and not changed. If it is this
        // claim, the lease began after the row looked free.
        Ok(match row {
            Some(row) if row.is_held && row.is_of(values.id) => Taken::Granted(row.token),
            row => Taken::refused(row.as_ref(), values.id, now >= values.until),
        })
    }

    async fn facts(&mut self, config: &Config) -> Result<Facts, Failure> {
        examine::facts(self, config).await
    }
}

/// Reads the row of `values.key`, and the server's time.
async fn look(
    session: &mut MySqlSession,
    statements: &Statements,
    values: &Values<'_>,
) -> Result<Seen, Failure> {
    let seen = statements.look.run(session, values).await?.rows.pop();
    Ok(seen.ok_or_else(unexpected_reply)?)
}
