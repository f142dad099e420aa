//! Acquiring: places the record of a claim, or asks for its state.

use std::future::Future;
use std::sync::Arc;

use tenure_backend::{AcquireReply, BackendError, Claim, Effect, Instant, Kind};

use crate::store::Contenders;
use crate::table::Known;

/// The state of a contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing<T> {
    /// It holds the lock.
    Granted,
    /// It waits at least until this contender has left. `None` if each contender that leaves may let it in.
    Waits {
        /// The contender.
        behind: Option<T>,
    },
    /// The lock has another kind.
    OtherKind(Kind),
}

/// A store that places claims.
pub trait Acquire: Contenders {
    /// Places a claim that has no record, as far as the client knows.
    fn place(
        self: &Arc<Self>,
        claim: &Claim,
        not_after: Instant,
    ) -> impl Future<Output = Result<AcquireReply, BackendError>> + Send;

    /// Asks for the state of a claim that has its record. That restarts the claim's lease.
    fn poll(
        self: &Arc<Self>,
        claim: &Claim,
        placed: Self::Placed,
    ) -> impl Future<Output = Result<AcquireReply, BackendError>> + Send;

    /// The reply to a claim that waits, or has to come again.
    fn waiting(&self, claim: &Claim) -> AcquireReply {
        let limits = &self.profile().limits;
        AcquireReply::Waiting {
            ahead: None,
            // The server reports the end of each record, but not when it will come: so the pause is as long as it may be late.
            poll_after: limits.expiry_slack.min(limits.lease(claim.lease) / 3),
        }
    }

    /// The reply to a claim that has no record, by the state that it would have.
    ///
    /// # Errors
    /// `Mismatch` if the lock has another kind.
    fn refused<T>(&self, claim: &Claim, standing: Standing<T>) -> Result<AcquireReply, BackendError> {
        match standing {
            Standing::OtherKind(held) => Err(BackendError::mismatch(held, claim.mode.kind())),
            _ => Ok(self.waiting(claim)),
        }
    }
}

/// Places a claim, or asks for its state.
pub(crate) async fn acquire<S: Acquire>(
    store: Arc<S>,
    claim: Arc<Claim>,
    not_after: Instant,
) -> Result<AcquireReply, BackendError> {
    let (profile, table, id) = (store.profile(), store.table(), claim.at.id);
    claim.check(&profile.limits)?;
    if !profile.serves(claim.mode, claim.fairness) {
        return Err(BackendError::unsupported(format!(
            "the layout `{}` has no locks of this kind and order: use the layout `{}`",
            profile.layout,
            profile.fuller_layout.unwrap_or(profile.layout),
        )));
    }
    let turn = table.turn(&claim.at).await;
    let reply = match table.know(id) {
        Known::Ended => Ok(AcquireReply::Ended),
        Known::Placed(placed) => store.poll(&claim, *placed).await,
        Known::Unplaced { .. } if store.now() > not_after => Ok(AcquireReply::TooLate),
        Known::Unplaced { .. } => store.place(&claim, not_after).await,
    };
    table.end_turn(id, turn);
    if matches!(reply, Ok(AcquireReply::Ended)) {
        table.check_open()?;
    }
    reply
}

/// Returns the error for a claim that was placed before a request failed.
pub fn placed_but(error: BackendError) -> BackendError {
    let message = "the claim was placed, but its state could not be read";
    BackendError::because(error.fault(), Effect::Unknown, message, error)
}
