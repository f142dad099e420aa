//! Renewing: the claims that share a lease or a session are renewed together.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::join_all;
use tenure_backend::{BackendError, Batch, ClaimId, Loss, Phase, RenewReply, RenewRequest};

use crate::store::Contenders;
use crate::table::{Known, Placed, Spot};

/// A renewal of a claim that is placed in the phase that was asked for.
#[derive(Debug)]
pub struct Renewal<P> {
    /// The position in the batch.
    pub at: usize,
    /// What is asked for.
    pub request: RenewRequest,
    /// The claim.
    pub placed: P,
}

/// A store that renews claims.
pub trait Renew: Contenders {
    /// The most claims that one request renews.
    const MAX_TOGETHER: usize;

    /// Renews groups of claims. Those of a group share what keeps their records. Returns the replies with the positions of their
    /// requests.
    fn renew(
        self: &Arc<Self>,
        groups: Vec<Vec<Renewal<Self::Placed>>>,
    ) -> impl Future<Output = Vec<(usize, RenewReply)>> + Send;

    /// Turns a write claim into a read claim, at the same place in the queue.
    fn downgrade(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Self::Placed,
    ) -> impl Future<Output = Result<(), BackendError>> + Send;
}

/// Renews a batch of claims.
pub(crate) async fn renew<S: Renew>(store: Arc<S>, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
    let (mut replies, mut groups) = (Vec::new(), Vec::<Vec<Renewal<S::Placed>>>::new());
    // Side by side, so that the times that downgrades take do not add up.
    let begun = batch
        .into_iter()
        .map(async |request| (begin(&store, &request).await, request));
    for (at, (begun, request)) in join_all(begun).await.into_iter().enumerate() {
        match begun {
            Ok(placed) => {
                let has_room = |group: &&mut Vec<Renewal<S::Placed>>| {
                    group.len() < S::MAX_TOGETHER && group[0].placed.spot().shares(placed.spot())
                };
                let group = groups.iter_mut().find(has_room);
                let renewal = Renewal { at, request, placed };
                match group {
                    Some(group) => group.push(renewal),
                    None => groups.push(vec![renewal]),
                }
            }
            Err(reply) => replies.push((at, reply)),
        }
    }
    replies.extend(store.renew(groups).await);
    replies.sort_unstable_by_key(|(at, _)| *at);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

/// Returns the claim that a request renews, and downgrades it if that is asked for. Otherwise the reply.
async fn begin<S: Renew>(store: &Arc<S>, request: &RenewRequest) -> Result<S::Placed, RenewReply> {
    request.check(store.profile()).map_err(RenewReply::Unknown)?;
    let (table, id) = (store.table(), request.claim.id);
    let placed = table.placed(id).ok_or_else(|| table.gone(id))?;
    let is_asked = match request.only {
        Phase::Granted => placed.granted().is_some(),
        Phase::Waiting => placed.granted().is_none(),
        _ => true,
    };
    if !is_asked {
        return Err(RenewReply::Gone(Loss::Missing));
    }
    let mode = request.mode(placed.value().mode).map_err(RenewReply::Unknown)?;
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
