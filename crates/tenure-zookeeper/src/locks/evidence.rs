//! Proof of a grant, and writes that have no effect without it.

use std::fmt;
use std::sync::{Arc, Weak};

use tenure_backend::{BackendError, ClaimId, Effect, Loss};

use super::placed::Placed;
use super::store::Locks;
use crate::client::{Op, Outcome, is_session_end};
use crate::error::refused;

/// Proof of a grant. A transaction of your own that checks the node's existence, with the version -1, has no effect after the
/// claim has ended. A downgrade replaces the node.
///
/// # Examples
/// ```no_run
/// use tenure_zookeeper::LockEvidence;
///
/// /// What a transaction of kazoo begins with.
/// fn check(evidence: &LockEvidence) -> String {
///     format!("transaction.check({:?}, -1)", evidence.path)
/// }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct LockEvidence {
    /// The path of the claim's node. No other claim has it.
    pub path: String,
    /// Number of the change that created the node. It rises from each holder of a lock to the next.
    pub czxid: i64,
    id: ClaimId,
    locks: Weak<Locks>,
}

impl LockEvidence {
    pub(super) fn new(id: ClaimId, placed: &Placed, locks: &Arc<Locks>) -> Self {
        LockEvidence {
            path: placed.nodes.paths[0].clone(),
            czxid: placed.nodes.czxid,
            id,
            locks: Arc::downgrade(locks),
        }
    }

    /// Sets the data of a node of yours over the session of the claim, in one transaction. Returns false, and writes nothing, if
    /// the claim has ended. Follows a downgrade.
    ///
    /// # Cancel safety
    /// The data may be set if the future is dropped.
    ///
    /// # Errors
    /// As any request; [`Fault::Store`](tenure_backend::Fault::Store) if the node does not exist. With an unknown effect the data may
    /// have been set, while the claim held the lock.
    pub async fn set_data(&self, path: &str, data: &[u8]) -> Result<bool, BackendError> {
        let Some(locks) = self.locks.upgrade().filter(|locks| !locks.table.is_closed()) else {
            return Err(BackendError::closed());
        };
        let Some(placed) = locks.table.placed(self.id) else {
            return Ok(false);
        };
        let write = [
            Op::Check(placed.nodes.paths[0].clone(), None),
            Op::SetData(path.to_owned(), data.to_owned(), None),
        ];
        match placed.spot.session.client.multi(&write).await {
            Ok(Outcome::Done { .. }) => Ok(true),
            Ok(Outcome::Refused { index: 0, .. }) => Ok(false),
            Ok(Outcome::Refused { code, .. }) => Err(refused(code)),
            Err(error) if is_session_end(&error) && error.effect() == Effect::None => {
                locks.lose(self.id, &placed, Loss::Session);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for LockEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockEvidence")
            .field("path", &self.path)
            .field("czxid", &self.czxid)
            .finish()
    }
}
