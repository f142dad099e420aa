//! Releasing: removes the record of a claim of this client, or evicts other contenders.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Cause, ClaimId, ClaimRef, Effect, Fault, HANDOVER_WINDOW, HolderId,
    ReleaseReply, ReleaseRequest, ReleaseTarget, Successor, TURN,
};
use tokio::time::sleep;

use crate::acquire::{Acquire, acquire};
use crate::store::{Contender, Contenders};
use crate::table::Known;

/// How often an eviction is repeated for contenders that have changed since they were read.
const MAX_REPEATS: u32 = 8;

/// What a release did.
#[derive(Default)]
struct Released {
    freed: Vec<HolderId>,
    /// The reply for a successor that was placed in the same step.
    successor: Option<Result<AcquireReply, BackendError>>,
}

/// Releases a claim of this client, or evicts others. To be run to its end.
pub(crate) async fn release<S: Acquire>(
    store: Arc<S>,
    request: ReleaseRequest,
) -> Result<ReleaseReply, BackendError> {
    if let Some(successor) = request.checked_successor()? {
        successor.check(&store.profile().limits)?;
    }
    let released = match (&request.target, &request.cause) {
        (target, Cause::Evicted { by }) => evict(&store, target, by.clone(), request.cooldown).await?,
        (ReleaseTarget::Claim(claim), _) => release_own(&store, claim, request.successor.as_ref()).await?,
        (target, _) => evict(&store, target, None, request.cooldown).await?,
    };
    let successor = match (request.successor, released.successor) {
        (Some(successor), None) => Some(acquire(store, successor.claim, successor.not_after).await),
        (_, placed) => placed,
    };
    Ok(ReleaseReply::Done {
        freed: released.freed.into_iter().collect(),
        others: None,
        successor: successor.and_then(|reply| match reply {
            // It may be placed: without a reply, the engine withdraws it.
            Err(error) if error.effect() == Effect::Unknown => None,
            // The next poll returns the error.
            Err(_) | Ok(AcquireReply::Waiting { .. }) => Some(AcquireReply::Waiting {
                ahead: None,
                poll_after: TURN,
            }),
            Ok(reply) => Some(reply),
        }),
    })
}

/// Releases a claim of this client.
async fn release_own<S: Contenders>(
    store: &Arc<S>,
    claim: &ClaimRef,
    successor: Option<&Successor>,
) -> Result<Released, BackendError> {
    let table = store.table();
    let turn = table.turn(claim).await;
    let released = release_in_turn(store, claim.id, successor).await;
    match &released {
        Ok(_) => table.end(claim.id, store.now(), None),
        Err(error) if error.effect() == Effect::None => table.cancel_release(claim.id),
        Err(_) => {}
    }
    table.end_turn(claim.id, turn);
    released
}

async fn release_in_turn<S: Contenders>(
    store: &Arc<S>,
    id: ClaimId,
    successor: Option<&Successor>,
) -> Result<Released, BackendError> {
    let mut released = Released::default();
    let was_placed = match store.table().begin_release(id) {
        (_, Some(in_flight)) => store.withdraw(id, &in_flight).await?,
        (Some(placed), None) => {
            if let Some(successor) = successor {
                released.successor = hand_over(store, &placed, successor).await?;
            }
            released.successor.is_some() || store.unlock(id, &placed).await?
        }
        (None, None) => {
            store.table().check_open()?;
            false
        }
    };
    released.freed.extend(was_placed.then_some(HolderId::Claim(id)));
    Ok(released)
}

/// Removes a claim's record and creates that of its successor in one step. `None` if that had no effect.
async fn hand_over<S: Contenders>(
    store: &Arc<S>,
    placed: &S::Placed,
    successor: &Successor,
) -> Result<Option<Result<AcquireReply, BackendError>>, BackendError> {
    let (table, claim) = (store.table(), &successor.claim.at);
    let turn = table.turn(claim).await;
    let replaced = match table.know(claim.id) {
        Known::Unplaced {
            is_in_flight: false, ..
        } if store.now() <= successor.not_after => {
            let replaced = store.replace(placed, successor).await;
            if matches!(replaced, Ok(None)) {
                table.unplace(claim.id);
            }
            replaced
        }
        _ => Ok(None),
    };
    table.end_turn(claim.id, turn);
    replaced
}

/// Evicts one contender of a lock, or all that hold it.
async fn evict<S: Contenders>(
    store: &Arc<S>,
    target: &ReleaseTarget,
    by: Option<Arc<str>>,
    cooldown: Duration,
) -> Result<Released, BackendError> {
    let mut released = Released::default();
    let mut has_begun = false;
    // The last contender that held the lock at first: those that follow when it has left are not evicted.
    let mut last_holder = None;
    for _ in 0..MAX_REPEATS {
        let all = store.contenders(target).await?;
        let waits = |at: usize| S::Contender::waits(&all, at);
        let last_holder = *last_holder.get_or_insert_with(|| {
            let holders = (0..all.len()).filter(|at| !waits(*at));
            holders.map(|at| all[at].created()).max()
        });
        let is_target = |at: &usize| match target {
            ReleaseTarget::Claim(claim) => all[*at].id() == HolderId::Claim(claim.id),
            ReleaseTarget::Foreign { id, .. } => all[*at].id() == HolderId::Foreign(id.clone()),
            ReleaseTarget::All(_) => !waits(*at) && Some(all[*at].created()) <= last_holder,
        };
        let (mut marked, mut has_changed) = (Vec::new(), false);
        for at in (0..all.len()).filter(is_target) {
            let is_marked = store.mark(&all, at, by.clone()).await;
            match is_marked.map_err(|error| partly(error, has_begun))? {
                true if waits(at) || all[at].value().is_none() => released.freed.push(all[at].id()),
                true => marked.push(&all[at]),
                false => has_changed = true,
            }
            has_begun |= !marked.is_empty() || !released.freed.is_empty();
        }
        if !marked.is_empty() {
            // sleep: the cooldown. A claim at the head of the queue is marked like a holder: only its client knows whether it was
            // granted.
            sleep(cooldown.clamp(S::MIN_COOLDOWN, HANDOVER_WINDOW)).await;
        }
        for one in marked {
            // If the holder has removed it first, this eviction was the reason.
            let removed = store.remove_marked(one).await;
            removed.map_err(|error| partly(error, true))?;
            released.freed.push(one.id());
        }
        if !has_changed {
            return Ok(released);
        }
    }
    let message = "other clients change this lock all the time: evict again";
    let error = BackendError::new(Fault::Unavailable, Effect::None, message);
    Err(partly(error, has_begun))
}

/// The error of an eviction, of which a part was carried out if it `has_begun`.
fn partly(error: BackendError, has_begun: bool) -> BackendError {
    if !has_begun {
        return error;
    }
    let message = "a part of the eviction was carried out";
    BackendError::because(error.fault(), Effect::Unknown, message, error)
}
