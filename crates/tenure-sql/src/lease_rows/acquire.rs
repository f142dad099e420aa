//! Acquiring: takes the row of a claim, or polls it.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, Effect, Grant, Instant, RenewReply, RenewRequest, TokenRange,
};
use tokio::time::sleep;

use super::holder;
use super::own_claims::Known;
use super::reply::Taken;
use super::rows::{BUSY_PAUSE, LeaseRows, ROW_WAIT, micros, token_run};
use super::session::LeaseSession;
use super::statement::Values;
use crate::server::error::Failure;
use crate::server::pool::Priority;

/// How often a client looks for rows to remove.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

impl<S: LeaseSession> LeaseRows<S> {
    pub(super) async fn acquire_row(
        self: Arc<Self>,
        claim: Arc<Claim>,
        not_after: Instant,
        priority: Priority,
    ) -> Result<AcquireReply, BackendError> {
        self.check(&claim)?;
        let id = claim.at.id;
        match self.claims.begin(&claim, self.now()) {
            Known::Ended => return Ok(AcquireReply::Ended),
            Known::Granted(tokens) => return self.poll_granted(&claim, tokens).await,
            Known::Nothing => {}
        }
        let reply = self.place(&claim, not_after, priority).await;
        match &reply {
            Ok(AcquireReply::Granted(grant)) => {
                if self.claims.answered(id, Some(grant.tokens)) {
                    // The release may have come first, and found nothing.
                    self.release_row(&claim.at).await?;
                    return Ok(AcquireReply::Ended);
                }
                self.pool.keep_one(true);
                self.sweep_now_and_then();
            }
            Err(error) if error.effect() == Effect::Unknown => self.claims.unanswered(id, not_after),
            _ => drop(self.claims.answered(id, None)),
        }
        reply
    }

    /// Asks for the row of a claim.
    async fn place(
        &self,
        claim: &Claim,
        not_after: Instant,
        priority: Priority,
    ) -> Result<AcquireReply, BackendError> {
        let has_tokens = self.pool.config.layout.has_tokens();
        let tokens = has_tokens.then(|| self.profile.limits.grants(claim.grants).get());
        let text = holder::write(claim, tokens, self.widths.holder);
        let id = text.split(' ').next().unwrap_or_default();
        let lease = self.profile.limits.lease(claim.lease);
        let values = Values {
            key: claim.at.key.as_str(),
            id,
            holder: &text,
            tokens: tokens.unwrap_or_default().into(),
            lease: micros(lease),
            ..Values::default()
        };
        let mut first = true;
        let (taken, sent) = loop {
            let permit = self.pool.permit(priority).await?;
            // A claim that holds its row may be polled after `not_after`, too.
            if not_after <= self.now() && !self.claims.may_hold(claim.at.id) {
                self.pool.check_dials(&permit)?;
                break (Taken::Late, not_after);
            }
            let asked = self.pool.with_permit(permit, async |session| {
                let until = i64::try_from(session.clock().at(not_after)).unwrap_or(i64::MAX);
                let sent = self.now();
                let taken = session
                    .take(&self.statements, &Values { until, ..values })
                    .await?;
                Ok((taken, sent))
            });
            match asked.await {
                // The time limit was computed from a lower bound of the server's clock, which this reply has raised.
                Ok((Taken::Late, sent)) if first && sent < not_after => first = false,
                Ok(asked) => break asked,
                Err(Failure::Repeat) if self.now() < not_after => sleep(BUSY_PAUSE).await,
                Err(Failure::Busy | Failure::Repeat) => break (Taken::Busy(None), self.now()),
                Err(Failure::Error(error)) => return Err(error),
            }
        };
        Ok(match taken {
            Taken::Granted(last) => AcquireReply::Granted(Grant::new(token_run(last, tokens)?, sent, lease)),
            Taken::Own(last) => return self.poll_granted(claim, token_run(last, tokens)?).await,
            Taken::Ended => AcquireReply::Ended,
            Taken::Late => {
                // On PostgreSQL a statement is late `ROW_WAIT` before its time limit. The contract says `TooLate` only after it.
                sleep((not_after - self.now()).min(ROW_WAIT)).await;
                AcquireReply::TooLate
            }
            Taken::Busy(left) => {
                let pause = self.claims.poll_after(claim.at.id, self.now());
                let left = left.filter(|left| !left.is_zero());
                let poll_after = left.map_or(pause, |left| pause.min(left));
                AcquireReply::Waiting {
                    ahead: None,
                    poll_after,
                }
            }
        })
    }

    /// Polls a claim that holds its row, which restarts its lease.
    async fn poll_granted(
        &self,
        claim: &Claim,
        tokens: Option<TokenRange>,
    ) -> Result<AcquireReply, BackendError> {
        match self.renew_claim(&RenewRequest::of(claim)).await? {
            RenewReply::Alive { held_from, lease } => {
                Ok(AcquireReply::Granted(Grant::new(tokens, held_from, lease)))
            }
            RenewReply::Gone(_) => Ok(AcquireReply::Ended),
            RenewReply::Unknown(error) => Err(error),
        }
    }

    /// Removes rows that have expired, at most once in [`SWEEP_INTERVAL`], in a task of its own.
    fn sweep_now_and_then(self: &Arc<Self>) {
        let now = self.now();
        if self.statements.sweep.is_none() || now - *self.swept.lock() < SWEEP_INTERVAL {
            return;
        }
        *self.swept.lock() = now;
        let rows = self.clone();
        tokio::spawn(async move {
            if let Some(sweep) = &rows.statements.sweep
                && let Err(error) = rows.run_with(Priority::Low, sweep, &Values::default()).await
            {
                tracing::debug!(%error, "expired rows are not removed: the next sweep tries again");
            }
        });
    }
}
