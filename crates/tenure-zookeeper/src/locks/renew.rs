//! Renewing: one transaction for each session, which checks the nodes of its claims.

use std::sync::Arc;

use futures_util::future::join_all;
use tenure_backend::{BackendError, ClaimId, Effect, Instant, Loss, Mode, RenewReply, RenewRequest};
use tenure_contenders::{Contenders as _, Renew, Renewal};

use super::names::name;
use super::placed::Placed;
use super::requests::{MAX_REPEATS, delete_all, is_changed, unsettled};
use super::store::Locks;
use crate::client::{Code, Mode as NodeMode, Op, Outcome, is_session_end};
use crate::error::refused;

impl Renew for Locks {
    /// With the longest paths, ZooKeeper still reads a transaction of this size.
    const MAX_TOGETHER: usize = 500;

    async fn renew(self: &Arc<Self>, groups: Vec<Vec<Renewal<Placed>>>) -> Vec<(usize, RenewReply)> {
        let renewing = groups.into_iter().map(|group| self.renew_in_session(group));
        join_all(renewing).await.into_iter().flatten().collect()
    }

    /// Turns a write claim into a read claim, as Curator does: its new node has the number of the one before, and so its place.
    async fn downgrade(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> Result<(), BackendError> {
        let number = name(&placed.nodes[0])
            .rsplit_once("__")
            .map_or("", |(_, number)| number);
        let read = self.names.contender(id, Mode::Read);
        let read = format!("{}/{read}{number}", placed.spot.folder);
        let mut value = placed.value.clone();
        (value.mode, value.granted_at) = (Mode::Read, Some(placed.czxid));
        let client = &placed.spot.session.client;
        let mut known = placed.clone();
        for _ in 0..MAX_REPEATS {
            let mut ops = known.deletes();
            ops.push(Op::Create(
                read.clone(),
                value.write().into(),
                NodeMode::Ephemeral,
                self.config.acl,
            ));
            match client.multi(&ops).await {
                Ok(Outcome::Done { zxid, .. }) => {
                    let is_alive = self.table.update(id, known.czxid, |placed| {
                        (placed.nodes, placed.version, placed.czxid) = (vec![read.clone()], 0, zxid);
                        placed.value = value;
                    });
                    if !is_alive {
                        // If this fails, the withdrawal of the claim finds the node.
                        let _ = delete_all(client, &[read]).await;
                    }
                    return Ok(());
                }
                Ok(Outcome::Refused { index, code }) => {
                    match self.own_after(id, &known, (index, code)).await? {
                        // An earlier request was carried out and not answered.
                        Some(own) if own.nodes[0] == read => {
                            self.table.update(id, own.czxid, |placed| placed.value = value);
                            return Ok(());
                        }
                        Some(own) => known = own,
                        // The renewal reports the loss.
                        None => return Ok(()),
                    }
                }
                Err(error) => {
                    if error.effect() == Effect::Unknown {
                        self.table.unanswered(id, placed.ends);
                    }
                    return Err(error);
                }
            }
        }
        Err(unsettled())
    }
}

impl Locks {
    /// Renews claims of one session. Returns the replies with the positions of their requests.
    async fn renew_in_session(
        self: &Arc<Self>,
        mut renewals: Vec<Renewal<Placed>>,
    ) -> Vec<(usize, RenewReply)> {
        let (mut replies, mut changed) = (Vec::new(), Vec::new());
        // Each round that is refused sets one claim aside, and the last round empties the list.
        while let Some(first) = renewals.first() {
            let session = first.placed.spot.session.clone();
            let checks_of = |renewal: &Renewal<Placed>| renewal.placed.unchanged();
            let checks: Vec<Op> = renewals.iter().flat_map(checks_of).collect();
            let sent = self.now();
            let error = match session.client.multi(&checks).await {
                Ok(Outcome::Done { .. }) => {
                    let renewed = renewals.drain(..);
                    replies
                        .extend(renewed.map(|one| (one.at, self.renewed(&one.request, &one.placed, sent))));
                    continue;
                }
                Ok(Outcome::Refused { index, code }) => {
                    let positions = renewals.iter().enumerate();
                    let mut position =
                        positions.flat_map(|(at, renewal)| checks_of(renewal).into_iter().map(move |_| at));
                    match position.nth(index) {
                        Some(at) if is_changed(code) || code == Code::NO_AUTH => {
                            changed.push(renewals.swap_remove(at));
                            continue;
                        }
                        _ => refused(code),
                    }
                }
                Err(error) => error,
            };
            let is_end = is_session_end(&error);
            replies.extend(renewals.drain(..).map(|renewal| {
                let id = renewal.request.claim.id;
                if is_end {
                    self.lose(id, &renewal.placed, Loss::Session);
                    return (renewal.at, self.table.gone(id));
                }
                (renewal.at, RenewReply::Unknown(error.clone()))
            }));
        }
        let alone = changed
            .iter()
            .map(async |one| (one.at, self.renew_changed(one).await));
        replies.extend(join_all(alone).await);
        replies
    }

    /// Renews a claim with a node that was changed, is missing, or must not be read.
    async fn renew_changed(self: &Arc<Self>, renewal: &Renewal<Placed>) -> RenewReply {
        let (id, sent) = (renewal.request.claim.id, self.now());
        match self.confirm(id, &renewal.placed).await {
            Ok(Some(placed)) => self.renewed(&renewal.request, &placed, sent),
            Ok(None) => self.table.gone(id),
            Err(error) => RenewReply::Unknown(error),
        }
    }

    /// Renews a claim that was checked by a request which was sent at `sent`.
    fn renewed(&self, request: &RenewRequest, placed: &Placed, sent: Instant) -> RenewReply {
        let id = request.claim.id;
        let asked = self.profile.limits.lease(request.lease);
        let (held_from, lease) = self.lease(placed, asked, sent, placed.granted.is_some());
        let mut ends = held_from + lease;
        let is_alive = self.table.update(id, placed.czxid, |placed| {
            ends = request.end(placed.ends, ends);
            (placed.lease, placed.ends) = ((held_from, ends - held_from), ends);
        });
        match is_alive {
            true => RenewReply::Alive {
                held_from,
                lease: ends - held_from,
            },
            false => self.table.gone(id),
        }
    }
}
