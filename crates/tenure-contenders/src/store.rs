//! What a store adds to the shared part, and the end of claims that were not renewed.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, Clock, HANDOVER_WINDOW, HolderId, Instant, Mode, Profile,
    ReleaseTarget, Successor,
};
use tokio::time::sleep;

use crate::table::{Expired, Placed, Spot, Table};
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
    /// How the contender holds the lock, or wants to.
    fn mode(&self) -> Mode;
    /// Whether a contender waits, of all contenders of its lock, the oldest first.
    fn waits(all: &[Self], at: usize) -> bool;

    /// The label for people.
    fn label(&self) -> Option<Arc<str>> {
        self.value().and_then(Value::label)
    }

    /// Whether the contender is being evicted.
    fn is_evicted(&self) -> bool {
        self.value().is_some_and(|value| value.is_evicted)
    }
}

/// A store whose contenders queue on a server.
pub trait Contenders: Send + Sync + Sized + 'static {
    /// A claim of this client.
    type Placed: Placed;
    /// Any contender of a lock.
    type Contender: Contender;

    /// The shortest time between the mark of an eviction and the end of its record, at most [`HANDOVER_WINDOW`]: an acquire that
    /// is answered by what was read earlier relies on it.
    const MIN_COOLDOWN: Duration;

    /// What the store promises.
    fn profile(&self) -> &Profile;
    /// The clock that measures leases.
    fn clock(&self) -> &Arc<dyn Clock>;
    /// What the client knows of its own claims.
    fn table(&self) -> &Table<Self::Placed>;
    /// The servers, for people.
    fn address(&self) -> String;
    /// Closes the connections and the table.
    fn close(&self);

    /// The time of the clock that measures leases.
    fn now(&self) -> Instant {
        self.clock().now()
    }

    /// What the record of a claim says.
    fn value(&self, claim: &Claim) -> Value {
        Value::of(claim, self.profile().limits.grants(claim.grants))
    }

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

    /// Removes a claim's record and creates that of its successor in one step. `None` if that had no effect, or cannot be done.
    fn replace(
        self: &Arc<Self>,
        placed: &Self::Placed,
        successor: &Successor,
    ) -> impl Future<Output = Result<Option<Result<AcquireReply, BackendError>>, BackendError>> + Send;

    /// Reads the contenders of the lock that an eviction is for, the oldest first, as they are now.
    fn contenders(
        self: &Arc<Self>,
        target: &ReleaseTarget,
    ) -> impl Future<Output = Result<Vec<Self::Contender>, BackendError>> + Send;

    /// Marks a holder as evicted, so that no confirmation of its client succeeds from now on, and tells its client. Removes a
    /// foreign contender at once, and one that waits behind others. Returns false if the contender, or one of those, has left.
    fn mark(
        self: &Arc<Self>,
        all: &[Self::Contender],
        at: usize,
        by: Option<Arc<str>>,
    ) -> impl Future<Output = Result<bool, BackendError>> + Send;

    /// Removes the record of a contender that was marked.
    fn remove_marked(
        self: &Arc<Self>,
        marked: &Self::Contender,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// Returns whether a record at this spot, which could not be removed because of this error, ends without the client: nothing
    /// keeps it alive any more. The store may see to that.
    fn ends_by_itself(&self, spot: &<Self::Placed as Placed>::Spot, error: &BackendError) -> bool;
}

/// Ends claims that were not renewed in time, until the store is closed or dropped: other claims keep their records alive.
pub(crate) async fn end_claims<S: Contenders>(store: Weak<S>) {
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
