//! The driver's requests on one connection, and what the server's rows mean.

use super::session::PgSession;
use super::{examine, statements, table};
use crate::lease_rows::{Dialect, LeaseSession, Statements, Taken, Values, Widths, seen};
use crate::server::Config;
use crate::server::dial::Session;
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

    async fn take(&mut self, statements: &Statements, values: &Values<'_>) -> Result<Taken, Failure> {
        let take = &statements.take;
        let mut answer = self.run(&take.sql, &take.bind(values)).await?.rows;
        let answer = answer.first_mut().ok_or_else(unexpected_reply)?;
        let (before, now) = seen(answer)?;
        self.learn(now);
        let (granted, last) = (answer.flag()?, answer.number()?);
        Ok(match granted {
            true => Taken::Granted(last),
            false => Taken::refused(before.as_ref(), values.id, now >= values.until),
        })
    }

    async fn facts(&mut self, config: &Config) -> Result<Facts, Failure> {
        examine::facts(self, config).await
    }
}
