//! Renewing: one keep-alive for each lease, and one transaction that reads the keys of its claims.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tenure_backend::{BackendError, Batch, ClaimId, Loss, Phase, RenewReply, RenewRequest};

use super::acquire::{ranges, unchanged};
use super::leases::Lease;
use super::store::Locks;
use super::table::{Known, Placed};
use crate::client::{Op, PutRequest, RangeRequest, TxnRequest};

/// The most keys that one transaction reads. etcd's limit is 128.
const MAX_READS: usize = 100;

/// A renewal of a claim that is placed in the phase that was asked for.
struct Renewal {
    /// The position in the batch.
    at: usize,
    request: RenewRequest,
    placed: Placed,
}

impl Locks {
    pub(super) async fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        let too_many = self.profile.limits.check_batch(batch.len());
        let missing = || RenewReply::Gone(Loss::Missing);
        let mut replies: Vec<RenewReply> = batch.iter().map(|_| missing()).collect();
        let mut by_lease: HashMap<i64, (Arc<Lease>, Vec<Renewal>)> = HashMap::new();
        for (at, request) in batch.into_iter().enumerate() {
            let checked = match &too_many {
                Ok(()) => self.begin_renewal(&request).await,
                Err(error) => Err(error.clone()),
            };
            match checked {
                Ok(Ok(placed)) => {
                    let lease = placed.spot.lease.clone();
                    let (_, renewals) = by_lease.entry(lease.id).or_insert_with(|| (lease, Vec::new()));
                    renewals.push(Renewal { at, request, placed });
                }
                Ok(Err(loss)) => replies[at] = RenewReply::Gone(loss),
                Err(error) => replies[at] = RenewReply::Unknown(error),
            }
        }
        let leases: Vec<_> = by_lease.values().map(|(lease, _)| lease.clone()).collect();
        // A lease whose keep-alive failed is asked once more, together with its claims.
        let kept = self.leases.keep(&leases).await;
        let renewing = by_lease.into_values().map(async |(lease, renewals)| {
            let chunks = renewals.chunks(MAX_READS);
            let chunks = chunks.map(|renewals| self.renew_on(&lease, renewals, kept.is_err()));
            join_all(chunks).await.into_iter().flatten().collect::<Vec<_>>()
        });
        for (at, reply) in join_all(renewing).await.into_iter().flatten() {
            replies[at] = reply;
        }
        self.ends.notify_one();
        replies.into_iter().collect()
    }

    /// Checks a request, and downgrades its claim if that is asked for. Returns where the claim is placed, or why it cannot
    /// be renewed.
    async fn begin_renewal(&self, request: &RenewRequest) -> Result<Result<Placed, Loss>, BackendError> {
        request.check(&self.profile)?;
        if request.raise.is_some() {
            let message =
                "etcd's revisions are the tokens, and cannot be raised: leave etcd out of the quorum";
            return Err(BackendError::unsupported(message));
        }
        let id = request.claim.id;
        let is_right = |placed: &Placed| match request.only {
            Phase::Waiting => placed.granted.is_none(),
            Phase::Granted => placed.granted.is_some(),
            Phase::Either => true,
        };
        let Some(placed) = self.table.placed(id) else {
            return Ok(Err(self.table.loss(id)));
        };
        if !is_right(&placed) {
            return Ok(Err(Loss::Missing));
        }
        let mode = request.mode(placed.value.mode)?;
        if mode == placed.value.mode {
            return Ok(Ok(placed));
        }
        let turn = self.table.turn(&request.claim).await;
        let downgraded = self.downgrade(id).await;
        self.table.end_turn(id, turn);
        downgraded
    }

    /// Turns a write claim into a read claim. Its key keeps the create revision, and so the claim's place and tokens.
    async fn downgrade(&self, id: ClaimId) -> Result<Result<Placed, Loss>, BackendError> {
        let Known::Placed(placed) = self.table.know(id) else {
            return Ok(Err(self.table.loss(id)));
        };
        let mut value = placed.value.clone();
        value.mode = tenure_backend::Mode::Read;
        let put = PutRequest {
            key: placed.spot.key.clone(),
            value: value.write(),
            ignore_lease: true,
            ..PutRequest::default()
        };
        let look = Op::Range(RangeRequest::key(&*placed.spot.key));
        let txn = TxnRequest::new(unchanged(&placed).into(), vec![Op::Put(put)], vec![look]);
        let reply = self.client.txn(txn).await?;
        if reply.succeeded {
            let modified = reply.header.map_or(0, |header| header.revision);
            self.table.update(id, placed.created, |placed| {
                (placed.modified, placed.value) = (modified, value);
            });
        } else {
            // An earlier request was carried out and not answered, or the claim is lost.
            let own = ranges(reply).pop().and_then(|own| own.into_iter().next());
            self.is_own(id, &placed, own).await?;
        }
        Ok(self.table.placed(id).ok_or_else(|| self.table.loss(id)))
    }

    /// Renews claims on one lease.
    async fn renew_on(
        &self,
        lease: &Arc<Lease>,
        renewals: &[Renewal],
        restart: bool,
    ) -> Vec<(usize, RenewReply)> {
        let txn = || {
            let read = |renewal: &Renewal| {
                Op::Range(RangeRequest {
                    keys_only: true,
                    ..RangeRequest::key(&*renewal.placed.spot.key)
                })
            };
            TxnRequest::new(Vec::new(), renewals.iter().map(read).collect(), Vec::new())
        };
        let confirmed = match self.confirmed(lease, restart, txn).await {
            Ok(confirmed) => confirmed,
            Err(error) => {
                let failed = |renewal: &Renewal| (renewal.at, RenewReply::Unknown(error.clone()));
                return renewals.iter().map(failed).collect();
            }
        };
        let Some((kept, reply)) = confirmed else {
            let lost = |renewal: &Renewal| {
                let id = renewal.request.claim.id;
                self.lose(id, &renewal.placed, Loss::Session);
                (renewal.at, RenewReply::Gone(self.table.loss(id)))
            };
            return renewals.iter().map(lost).collect();
        };
        let mut replies = Vec::new();
        for (renewal, own) in renewals.iter().zip(ranges(reply)) {
            let (id, placed) = (renewal.request.claim.id, &renewal.placed);
            let reply = match self.is_own(id, placed, own.into_iter().next()).await {
                Err(error) => RenewReply::Unknown(error),
                Ok(false) => RenewReply::Gone(self.table.loss(id)),
                Ok(true) => {
                    let asked = kept.at + self.ttl(renewal.request.lease).min(lease.ttl);
                    let mut ends = asked;
                    let is_placed = self.table.update(id, placed.created, |placed| {
                        ends = renewal.request.end(placed.ends, asked);
                        placed.ends = ends;
                    });
                    match is_placed {
                        true => RenewReply::Alive {
                            held_from: kept.at,
                            lease: ends - kept.at,
                        },
                        false => RenewReply::Gone(self.table.loss(id)),
                    }
                }
            };
            replies.push((renewal.at, reply));
        }
        replies
    }
}
