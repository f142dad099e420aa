//! Renewing: one keep-alive for each lease, and one transaction that reads the keys of its claims.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tenure_backend::{BackendError, Batch, ClaimId, Loss, Mode, RenewReply, RenewRequest};
use tenure_contenders::{Contenders as _, begin_renewal};

use super::confirm::Confirmed;
use super::leases::{Kept, Lease};
use super::placed::Placed;
use super::requests::{put, read};
use super::store::Locks;
use crate::client::{KeyValue, Op, RangeRequest};

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
        let mut replies: HashMap<usize, RenewReply> = HashMap::new();
        let mut by_lease: HashMap<i64, (Arc<Lease>, Vec<Renewal>)> = HashMap::new();
        let count = batch.len();
        // Side by side, so that the times that downgrades take do not add up.
        let begun = batch
            .into_iter()
            .map(async |request| (begin_renewal(&self, &request).await, request));
        for (at, (begun, request)) in join_all(begun).await.into_iter().enumerate() {
            match begun {
                Ok(placed) => {
                    let lease = placed.spot.lease.clone();
                    let (_, renewals) = by_lease.entry(lease.id).or_insert_with(|| (lease, Vec::new()));
                    renewals.push(Renewal { at, request, placed });
                }
                Err(reply) => _ = replies.insert(at, reply),
            }
        }
        let leases: Vec<_> = by_lease.values().map(|(lease, _)| lease.clone()).collect();
        let asked = self.now();
        let kept = self.leases.keep(&leases).await;
        let renewing = by_lease.values().map(async |(lease, renewals)| match &kept {
            Err(error) if lease.kept().at < asked => each(renewals, |_| RenewReply::Unknown(error.clone())),
            _ => {
                let parts = renewals.chunks(MAX_READS).map(|part| self.renew_on(lease, part));
                join_all(parts).await.into_iter().flatten().collect()
            }
        });
        replies.extend(join_all(renewing).await.into_iter().flatten());
        let missing = || RenewReply::Gone(Loss::Missing);
        (0..count)
            .map(|at| replies.remove(&at).unwrap_or_else(missing))
            .collect()
    }

    /// Turns a write claim into a read claim. Its key keeps the create revision, and so the claim's place and tokens.
    pub(super) async fn make_reader(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
    ) -> Result<(), BackendError> {
        let (key, mut value) = (&*placed.spot.key, placed.value.clone());
        value.mode = Mode::Read;
        let then = vec![put(key, value.write(), None)];
        let reply = self.client.txn(placed.unchanged(), then, vec![read(key)]).await?;
        if reply.succeeded {
            self.table.update(id, placed.created, |placed| {
                (placed.modified, placed.value) = (reply.header.revision, value);
            });
        } else {
            // An earlier request was carried out and not answered, or the claim is lost.
            self.is_own(id, placed, reply.first(0)).await?;
        }
        Ok(())
    }

    /// Renews claims on one lease that was kept alive. Returns the replies with the positions of their requests.
    async fn renew_on(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        renewals: &[Renewal],
    ) -> Vec<(usize, RenewReply)> {
        let reads = || {
            let read = |renewal: &Renewal| {
                Op::Range(RangeRequest {
                    keys_only: true,
                    ..RangeRequest::key(&*renewal.placed.spot.key)
                })
            };
            renewals.iter().map(read).collect()
        };
        match self.confirmed(lease, false, reads).await {
            Err(error) => each(renewals, |_| RenewReply::Unknown(error.clone())),
            Ok(None) => each(renewals, |renewal| {
                let id = renewal.request.claim.id;
                self.lose(id, &renewal.placed, Loss::Session);
                self.table.gone(id)
            }),
            Ok(Some(Confirmed { kept, reply, .. })) => {
                let renewed = renewals.iter().enumerate().map(async |(read, renewal)| {
                    let renewed = self.renewed(renewal, kept, reply.first(read)).await;
                    (renewal.at, renewed.unwrap_or_else(RenewReply::Unknown))
                });
                join_all(renewed).await
            }
        }
    }

    /// Renews a claim whose lease counts from `kept` on, by its key as it was read.
    async fn renewed(
        self: &Arc<Self>,
        renewal: &Renewal,
        kept: Kept,
        own: Option<&KeyValue>,
    ) -> Result<RenewReply, BackendError> {
        let Renewal { request, placed, .. } = renewal;
        let id = request.claim.id;
        // The lease in etcd cannot be made longer.
        let asked = kept.at + self.ttl(request.lease).min(placed.spot.lease.ttl);
        let mut ends = asked;
        let is_alive = self.is_own(id, placed, own).await?
            && self.table.update(id, placed.created, |placed| {
                ends = request.end(placed.ends, asked);
                placed.ends = ends;
            });
        Ok(match is_alive {
            true => RenewReply::Alive {
                held_from: kept.at,
                lease: ends - kept.at,
            },
            false => self.table.gone(id),
        })
    }
}

fn each(renewals: &[Renewal], reply: impl Fn(&Renewal) -> RenewReply) -> Vec<(usize, RenewReply)> {
    renewals
        .iter()
        .map(|renewal| (renewal.at, reply(renewal)))
        .collect()
}
