//! Renewing: one keep-alive for each lease, and one transaction that reads the keys of its claims.

use std::sync::Arc;

use futures_util::future::join_all;
use tenure_backend::{BackendError, ClaimId, Loss, Mode, RenewReply};
use tenure_contenders::{Contenders as _, Renew, Renewal};

use super::confirm::Confirmed;
use super::leases::{Kept, Lease};
use super::placed::Placed;
use super::requests::{put, read};
use super::store::Locks;
use crate::client::{KeyValue, Op, RangeRequest};

impl Renew for Locks {
    /// One transaction reads the keys of a group. etcd's limit is 128.
    const MAX_TOGETHER: usize = 100;

    async fn renew(self: &Arc<Self>, groups: Vec<Vec<Renewal<Placed>>>) -> Vec<(usize, RenewReply)> {
        let leases: Vec<_> = groups
            .iter()
            .map(|group| group[0].placed.spot.lease.clone())
            .collect();
        let asked = self.now();
        let kept = self.leases.keep(&leases).await;
        let renewing = groups
            .iter()
            .zip(&leases)
            .map(async |(group, lease)| match &kept {
                Err(error) if lease.kept().at < asked => each(group, |_| RenewReply::Unknown(error.clone())),
                _ => self.renew_on(lease, group).await,
            });
        join_all(renewing).await.into_iter().flatten().collect()
    }

    /// Turns a write claim into a read claim. Its key keeps the create revision, and so the claim's place and tokens.
    async fn downgrade(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> Result<(), BackendError> {
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
}

impl Locks {
    /// Renews claims on one lease that was kept alive. Returns the replies with the positions of their requests.
    async fn renew_on(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        renewals: &[Renewal<Placed>],
    ) -> Vec<(usize, RenewReply)> {
        let reads = || {
            let read = |renewal: &Renewal<Placed>| {
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
        renewal: &Renewal<Placed>,
        kept: Kept,
        own: Option<&KeyValue>,
    ) -> Result<RenewReply, BackendError> {
        let Renewal { request, placed, .. } = renewal;
        let id = request.claim.id;
        if !self.is_own(id, placed, own).await? {
            return Ok(self.table.gone(id));
        }
        // The lease in etcd cannot be made longer.
        let length = self.ttl(request.lease).min(placed.spot.lease.ttl);
        let asked = |_: &Placed| kept.at + length;
        Ok(self.table.renewed(request, placed.created, kept.at, asked))
    }
}

fn each(
    renewals: &[Renewal<Placed>],
    reply: impl Fn(&Renewal<Placed>) -> RenewReply,
) -> Vec<(usize, RenewReply)> {
    renewals
        .iter()
        .map(|renewal| (renewal.at, reply(renewal)))
        .collect()
}
