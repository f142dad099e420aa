//! Releasing: gives rows back, and takes them from their holders.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Cause, ClaimRef, Effect, HolderId, MAX_NOT_AFTER, ReleaseReply,
    ReleaseRequest, ReleaseTarget, TURN,
};
use tokio::time::sleep;

use super::holder;
use super::rows::{LeaseRows, micros};
use super::session::LeaseSession;
use super::statement::Values;
use crate::server::pool::Priority;

/// The shortest time for which an eviction keeps a row: with none, the row would never be free again.
const MIN_COOLDOWN: Duration = Duration::from_millis(1);

impl<S: LeaseSession> LeaseRows<S> {
    pub(super) async fn release_one(
        self: Arc<Self>,
        request: ReleaseRequest,
    ) -> Result<ReleaseReply, BackendError> {
        if let Some(successor) = request.checked_successor()? {
            self.check(successor)?;
        }
        let evicted = match &request.cause {
            Cause::Evicted { by } => Some(by.as_deref()),
            _ => None,
        };
        let freed = match (&request.target, evicted) {
            (ReleaseTarget::Claim(claim), None) => self.release_own(claim).await?,
            (target, by) => self.evict(target, by.flatten(), request.cooldown).await?,
        };
        let successor = match request.successor {
            None => None,
            Some(successor) => match self
                .acquire_row(successor.claim, successor.not_after, Priority::High)
                .await
            {
                Ok(reply) => Some(reply),
                // It may have taken the row: without a reply, the engine withdraws it.
                Err(error) if error.effect() == Effect::Unknown => None,
                Err(error) => {
                    tracing::debug!(%error, "the next waiter was not granted the lock with the release: it polls");
                    Some(AcquireReply::Waiting {
                        ahead: None,
                        poll_after: TURN,
                    })
                }
            },
        };
        Ok(ReleaseReply::Done {
            freed: freed.into_iter().collect(),
            others: None,
            successor,
        })
    }

    /// Releases a claim. If a request of it may still take the row, releases it again when that time has passed, and once
    /// more after the time that a statement may take.
    pub(super) async fn release_own(
        self: &Arc<Self>,
        claim: &ClaimRef,
    ) -> Result<Option<HolderId>, BackendError> {
        let mut may_arrive_until = self.claims.begin_release(claim.id, self.now() + MAX_NOT_AFTER);
        let released = self.release_row(claim).await;
        match &released {
            Ok(_) => self.ended(claim),
            Err(error) if error.effect() == Effect::None => {
                // The claim stays as it was, so nothing may release it later.
                self.claims.cancel_release(claim.id);
                may_arrive_until = None;
            }
            Err(_) => {}
        }
        if let Some(until) = may_arrive_until {
            // What is written just before the limit is invisible until its commit.
            let waits = [until - self.now(), self.pool.config.command_timeout];
            let (rows, claim) = (self.clone(), claim.clone());
            tokio::spawn(async move {
                for wait in waits {
                    sleep(wait).await;
                    if let Err(error) = rows.release_row(&claim).await {
                        tracing::warn!(key = %claim.key, %error, "a lock may stay until its lease ends");
                    }
                }
            });
        }
        let was_held = released?;
        Ok(was_held.then_some(HolderId::Claim(claim.id)))
    }

    /// Frees a claim's row. Returns whether the claim held it.
    pub(super) async fn release_row(&self, claim: &ClaimRef) -> Result<bool, BackendError> {
        let id = claim.id.to_string();
        let values = Values {
            key: claim.key.as_str(),
            id: &id,
            ..Values::default()
        };
        let was_held = self.run(&self.statements.release, &values).await?.changed > 0;
        if !was_held && let Some(clear) = &self.statements.clear {
            self.run(clear, &values).await?;
        }
        Ok(was_held)
    }

    /// Takes a key from its holder, or from this one only.
    async fn evict(
        &self,
        target: &ReleaseTarget,
        by: Option<&str>,
        cooldown: Duration,
    ) -> Result<Option<HolderId>, BackendError> {
        let key = target.key();
        let is_target = |holder: &HolderId| match target {
            ReleaseTarget::All(_) => true,
            target => holder.clone().on(key.clone()) == *target,
        };
        let cooldown = cooldown.max(MIN_COOLDOWN);
        let look = Values {
            key: key.as_str(),
            ..Values::default()
        };
        loop {
            let row = self.run(&self.statements.look, &look).await?.rows().next();
            let Some((row, is)) = self.held(row).filter(|(_, is)| is_target(&is.id)) else {
                return Ok(None);
            };
            let holder = holder::write_evicted(&is.id, by, self.widths.holder);
            let seen = row.token.unwrap_or_default();
            let values = Values {
                holder: &holder,
                target: row.holder.as_deref().unwrap_or_default(),
                seen,
                lease: micros(cooldown),
                ..look
            };
            // If nothing was changed, the row has another holder now.
            if self.run(&self.statements.evict, &values).await?.changed > 0 {
                if let Some(settle) = &self.statements.settle {
                    sleep(cooldown).await;
                    let seen = seen + 1;
                    if let Err(error) = self.run(settle, &Values { seen, ..look }).await {
                        tracing::warn!(%key, %error, "the row stays locked for programs that know no leases");
                    }
                }
                return Ok(Some(is.id));
            }
        }
    }
}
