//! What a store adds to the shared part, and the verbs that follow from it.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, Effect, HANDOVER_WINDOW, HolderId, Instant, Mode, Profile,
    ReleaseTarget, RenewReply, RenewRequest, Successor,
};
use tokio::time::sleep;

use crate::table::{Expired, Known, Placed, Spot, Table};
use crate::value::Value;

/// The pause before a record that could not be removed is removed again.
const REMOVE_AGAIN: Duration = Duration::from_secs(1);

/// The shortest pause between two looks for claims whose leases have ended: a call may hold up the end of one.
const MIN_PAUSE: Duration = Duration::from_millis(5);

/// The longest pause between two looks for claims whose leases have ended: a renewal may have shortened one.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// How long a claim is known to have expired.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A contender of a lock, as its record says.
pub trait Contender: Send + Sync + Sized {
    /// The ID for people and for evictions.
    fn id(&self) -> HolderId;
    /// The change on the server that created the record.
    fn created(&self) -> i64;
    /// What Tenure has written; `None` for a foreign contender.
    fn value(&self) -> Option<&Value>;
    /// Whether a contender waits, of all contenders of its lock, the oldest first.
    fn waits(all: &[Self], at: usize) -> bool;
}

/// A store whose contenders queue on a server.
pub trait Contenders: Send + Sync + Sized + 'static {
    /// A claim of this client.
    type Placed: Placed;
    /// Any contender of a lock.
    type Contender: Contender;
    /// What all requests of one eviction share.
    type Eviction: Send + Sync;

    /// The shortest time between the mark of an eviction and the end of its record, at most [`HANDOVER_WINDOW`]: an acquire that
    /// is answered by what was read earlier relies on it.
    const MIN_COOLDOWN: Duration;

    /// What the store promises.
    fn profile(&self) -> &Profile;
    /// The time of the clock that measures leases.
    fn now(&self) -> Instant;
    /// What the client knows of its own claims.
    fn table(&self) -> &Table<Self::Placed>;

    /// Places a claim, or asks for its state.
    fn acquire(
        self: Arc<Self>,
        claim: Arc<Claim>,
        not_after: Instant,
    ) -> impl Future<Output = Result<AcquireReply, BackendError>> + Send;

    /// Removes the record of a claim. Returns false if the claim was lost before, which is recorded.
    fn unlock(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Self::Placed,
    ) -> impl Future<Output = Result<bool, BackendError>> + Send;

    /// Removes the record of a claim, whatever was written to it. Returns whether it was there.
    fn remove(
        self: &Arc<Self>,
        placed: &Self::Placed,
    ) -> impl Future<Output = Result<bool, BackendError>> + Send;

    /// Removes the record that a request may have created which was not answered, or may still create. Returns whether it was
    /// there.
    fn withdraw(
        self: &Arc<Self>,
        id: ClaimId,
        spot: &<Self::Placed as Placed>::Spot,
    ) -> impl Future<Output = Result<bool, BackendError>> + Send;

    /// Returns whether a claim's record can be removed and that of this successor created in one step.
    fn can_replace(&self, successor: &Claim) -> bool;

    /// Removes a claim's record and creates that of its successor in one step. `None` if that had no effect.
    fn replace(
        self: &Arc<Self>,
        placed: &Self::Placed,
        successor: &Successor,
    ) -> impl Future<Output = Result<Option<Result<AcquireReply, BackendError>>, BackendError>> + Send;

    /// Turns a write claim into a read claim, at the same place in the queue.
    fn downgrade(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Self::Placed,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// Begins an eviction: what changed before is seen by its requests.
    fn begin_eviction(self: &Arc<Self>) -> impl Future<Output = Result<Self::Eviction, BackendError>> + Send;

    /// Reads the contenders of the lock that an eviction is for, the oldest first.
    fn contenders(
        &self,
        eviction: &Self::Eviction,
        target: &ReleaseTarget,
    ) -> impl Future<Output = Result<Vec<Self::Contender>, BackendError>> + Send;

    /// Marks a holder as evicted, so that no confirmation of its client succeeds from now on, and tells its client. Removes a
    /// foreign contender at once, and one that waits behind others. Returns false if the contender, or one of those, has left.
    fn mark(
        &self,
        eviction: &Self::Eviction,
        all: &[Self::Contender],
        at: usize,
        by: Option<Arc<str>>,
    ) -> impl Future<Output = Result<bool, BackendError>> + Send;

    /// Removes the record of a contender that was marked.
    fn remove_marked(
        &self,
        eviction: &Self::Eviction,
        marked: &Self::Contender,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// Returns whether a record at this spot, which could not be removed because of this error, ends without the client: nothing
    /// keeps it alive any more. The store may see to that.
    fn ends_by_itself(&self, spot: &<Self::Placed as Placed>::Spot, error: &BackendError) -> bool;
}

/// Returns the error for a claim that was placed before a request failed.
pub fn placed_but(error: BackendError) -> BackendError {
    let message = "the claim was placed, but its state could not be read";
    BackendError::because(error.fault(), Effect::Unknown, message, error)
}

/// Returns the claim that a request renews, and downgrades it if that is asked for.
///
/// # Cancel safety
/// A downgrade may have been carried out or not. To be run to its end.
///
/// # Errors
/// The reply for a claim that is not renewed.
pub async fn begin_renewal<S: Contenders>(
    store: &Arc<S>,
    request: &RenewRequest,
) -> Result<S::Placed, RenewReply> {
    request.check(store.profile()).map_err(RenewReply::Unknown)?;
    let (table, id) = (store.table(), request.claim.id);
    let placed = table.renewable(request)?;
    let mode: Mode = request.mode(placed.value().mode).map_err(RenewReply::Unknown)?;
    if mode == placed.value().mode {
        return Ok(placed);
    }
    let turn = table.turn(&request.claim).await;
    let downgraded = match table.know(id) {
        // The call before this one may have downgraded the claim.
        Known::Placed(placed) if placed.value().mode != mode => store.downgrade(id, &placed).await,
        _ => Ok(()),
    };
    table.end_turn(id, turn);
    downgraded.map_err(RenewReply::Unknown)?;
    table.placed(id).ok_or_else(|| table.gone(id))
}

/// Ends claims that were not renewed in time, until the store is closed or dropped: other claims keep their records alive.
///
/// # Cancel safety
/// Dropping the future ends no more claims.
pub async fn end_claims<S: Contenders>(store: Weak<S>) {
    while let Some(held) = store.upgrade().filter(|held| !held.table().is_closed()) {
        for expired in held.table().expire(held.now(), REMEMBERED) {
            tokio::spawn(remove_expired(held.clone(), expired));
        }
        let next = held.table().next_end().map(|end| end - held.now());
        let changed = held.table().changed.clone();
        drop(held);
        match next {
            // sleep: until the next lease ends.
            Some(left) => sleep(left.clamp(MIN_PAUSE, MAX_PAUSE)).await,
            None => changed.notified().await,
        }
    }
}

async fn remove_expired<S: Contenders>(store: Arc<S>, expired: Expired<S::Placed>) {
    let remove = async || match &expired.placed {
        Some(placed) => store.remove(placed).await,
        None => store.withdraw(expired.id, &expired.spot).await,
    };
    while let Err(error) = remove().await {
        if !waits_to_remove(&*store, &expired.spot, &error).await {
            return;
        }
    }
    expired.spot.leave(&expired.lock);
}

/// Removes the record of an evicted claim after the cooldown, because its evictor may have died before it could.
pub fn remove_after_cooldown<S: Contenders>(store: &Arc<S>, placed: &S::Placed) {
    let (store, placed) = (store.clone(), placed.clone());
    tokio::spawn(async move {
        // sleep: the cooldown of the eviction.
        sleep(HANDOVER_WINDOW).await;
        while let Err(error) = store.remove(&placed).await {
            if !waits_to_remove(&*store, placed.spot(), &error).await {
                return;
            }
        }
    });
}

/// Waits before a record is removed again. Returns false if that is not needed.
async fn waits_to_remove<S: Contenders>(
    store: &S,
    spot: &<S::Placed as Placed>::Spot,
    error: &BackendError,
) -> bool {
    if store.table().is_closed() || store.ends_by_itself(spot, error) {
        return false;
    }
    // sleep: no event tells when the server answers again.
    sleep(REMOVE_AGAIN).await;
    true
}
