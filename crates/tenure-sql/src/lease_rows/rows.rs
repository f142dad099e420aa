//! What all requests to the rows share: their checks, and statements that are run alone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{BackendError, Claim, ClaimRef, Instant, Profile, Tasks, TokenRange};
use tokio::time::sleep;

use super::holder;
use super::own_claims::OwnClaims;
use super::reply::{Outcome, Row};
use super::session::LeaseSession;
use super::statement::{Statement, Statements, Values};
use super::table::Widths;
use crate::server::error::{Failure, invalid, unexpected_reply};
use crate::server::pool::{Pool, Priority};

/// How often a statement is repeated whose row another session has locked.
pub(super) const TRIES: u32 = 4;

/// The pause before a statement is repeated for the first time. In [`LeaseRows::run`] and in a renewal it grows with each time.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// The longest wait of PostgreSQL for a row that another session has not committed: such a session knows nothing of our
/// advisory locks. What a statement computed before the wait may be as old, so it is taken off the statement's time limit.
pub(crate) const ROW_WAIT: Duration = Duration::from_millis(20);

/// A store of locks: the rows of a table, and what this client knows of its claims.
pub(super) struct LeaseRows<S: LeaseSession> {
    pub(super) pool: Arc<Pool<S>>,
    pub(super) statements: Statements,
    pub(super) widths: Widths,
    pub(super) profile: Profile,
    pub(super) claims: OwnClaims,
    pub(super) swept: Mutex<Instant>,
    pub(super) tasks: Tasks,
}

impl<S: LeaseSession> LeaseRows<S> {
    pub(super) fn now(&self) -> Instant {
        self.pool.config.clock.now()
    }

    /// Refuses what the layout does not serve, before anything is sent.
    pub(super) fn check(&self, claim: &Claim) -> Result<(), BackendError> {
        claim.check(&self.profile.limits)?;
        if !self.profile.serves(claim.mode, claim.fairness) {
            let layout = self.profile.layout;
            let message =
                format!("the layout `{layout}` has unfair mutexes only: use another store for this lock");
            return Err(BackendError::unsupported(message));
        }
        let (length, most) = (claim.at.key.as_str().chars().count(), self.widths.key);
        if length > most {
            let message = format!(
                "this key has {length} characters, and the table's column holds {most}: use a shorter key"
            );
            return Err(invalid(message));
        }
        Ok(())
    }

    /// Notes that this client no longer has the claim.
    pub(super) fn ended(&self, claim: &ClaimRef) {
        self.pool.keep_one(self.claims.end(claim.id, self.now()));
    }

    /// Runs one statement of a renewal or a release, again if another session is in its way.
    pub(super) async fn run(
        &self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Outcome, BackendError> {
        self.run_with(Priority::High, statement, values).await
    }

    /// Runs one statement, again if another session is in its way.
    pub(super) async fn run_with(
        &self,
        priority: Priority,
        statement: &Statement,
        values: &Values<'_>,
    ) -> Result<Outcome, BackendError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let run = async |session: &mut S| statement.run(session, values).await;
            match self.pool.with(priority, run).await {
                Err(Failure::Busy | Failure::Repeat) if tries < TRIES => sleep(BUSY_PAUSE * tries).await,
                outcome => return outcome.map_err(Failure::into_error),
            }
        }
    }

    /// Reads the holder of a row; `None` if the row is free.
    pub(super) fn held(&self, row: Option<Row>) -> Option<(Row, holder::Holder)> {
        let row = row.filter(|row| row.is_held && !row.is_of(holder::EVICTED))?;
        let is = holder::read(row.holder.as_deref()?, self.pool.config.layout.has_tokens());
        Some((row, is))
    }
}

pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// The run of tokens that ends with this one.
pub(super) fn token_run(last: Option<i64>, tokens: Option<u32>) -> Result<Option<TokenRange>, BackendError> {
    let Some((last, tokens)) = last.zip(tokens) else {
        return Ok(None);
    };
    let first = u64::try_from(last - i64::from(tokens) + 1).ok();
    let run = first.and_then(|first| TokenRange::new(first.try_into().ok()?, tokens.try_into().ok()?));
    run.map(Some).ok_or_else(unexpected_reply)
}
