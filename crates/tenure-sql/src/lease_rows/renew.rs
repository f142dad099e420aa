//! Renewing: prolongs the lease of a claim that holds its row.

use std::sync::Arc;

use tenure_backend::{BackendError, Loss, Mode, Phase, RenewReply, RenewRequest};
use tokio::time::sleep;

use super::holder;
use super::reply::Row;
use super::rows::{BUSY_PAUSE, LeaseRows, TRIES, micros};
use super::session::LeaseSession;
use super::statement::Values;
use crate::server::error::Failure;

impl<S: LeaseSession> LeaseRows<S> {
    pub(super) async fn renew_one(
        self: Arc<Self>,
        request: RenewRequest,
    ) -> Result<RenewReply, BackendError> {
        request.check(&self.profile)?;
        if request.only == Phase::Waiting {
            // A claim that waits is not in the table.
            return Ok(RenewReply::Gone(Loss::Missing));
        }
        if request.downgrade {
            request.mode(Mode::Exclusive)?;
        }
        let renewed = self.renew_claim(&request).await?;
        if let (RenewReply::Alive { .. }, Some(tokens)) = (&renewed, request.raise)
            && self.pool.config.layout.has_tokens()
        {
            // The row tells the number of tokens as it was before: the caller raises as many.
            self.claims.raise(request.claim.id, tokens);
        }
        Ok(renewed)
    }

    /// Renews a claim, and notes if this client no longer has it. A row that another session has locked is tried again, and is
    /// never taken for lost.
    pub(super) async fn renew_claim(&self, request: &RenewRequest) -> Result<RenewReply, BackendError> {
        let id = request.claim.id.to_string();
        let lease = self.profile.limits.lease(request.lease);
        let raise = request.raise.map_or(0, |tokens| tokens.last().get());
        let values = Values {
            key: request.claim.key.as_str(),
            id: &id,
            lease: micros(lease),
            shorten: request.shorten_only,
            raise: i64::try_from(raise).unwrap_or(i64::MAX),
            ..Values::default()
        };
        for tries in 1..=TRIES {
            let held_from = self.now();
            let is_renewed = self.run(&self.statements.renew, &values).await?.changed > 0;
            if is_renewed && !request.shorten_only {
                return Ok(RenewReply::Alive { held_from, lease });
            }
            let held_from = self.now();
            let row = self.run(&self.statements.look, &values).await?.rows().next();
            match row {
                // A row that is not changed has a lease that ends earlier.
                Some(row) if row.is_of(&id) && row.is_held && request.shorten_only => {
                    let lease = row.left.map_or(lease, |left| left.min(lease));
                    return Ok(RenewReply::Alive { held_from, lease });
                }
                Some(row) if row.is_of(&id) && row.is_held => sleep(BUSY_PAUSE * tries).await,
                row => {
                    if self.claims.is_granted(request.claim.id) {
                        self.ended(&request.claim);
                    }
                    return Ok(RenewReply::Gone(loss(row.as_ref(), &id)));
                }
            }
        }
        Err(Failure::Busy.into_error())
    }
}

/// Why a claim no longer holds its row.
fn loss(row: Option<&Row>, id: &str) -> Loss {
    match row {
        Some(row) if row.is_of(id) => Loss::Expired,
        Some(row) => {
            let evicted = holder::read_evicted(row.holder.as_deref().unwrap_or_default(), id);
            evicted.map_or(Loss::Missing, |by| Loss::Evicted {
                by: by.map(Arc::from),
            })
        }
        None => Loss::Missing,
    }
}
