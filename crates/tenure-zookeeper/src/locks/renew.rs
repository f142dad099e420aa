//! Renewing: one transaction for each session, which checks the nodes of its claims.

use std::sync::Arc;

use futures_util::future::join_all;
use tenure_backend::{BackendError, ClaimId, Effect, Instant, Mode, RenewReply, RenewRequest};
use tenure_contenders::{Contenders as _, Renew, Renewal};

use super::confirm::is_changed;
use super::names::name;
use super::placed::Placed;
use super::store::Locks;
use crate::client::{Code, Mode as NodeMode, Op, Outcome, is_session_end};
use crate::error::refused;

impl Renew for Locks {
    /// With the longest paths, ZooKeeper still reads a transaction of this size.
    const MAX_TOGETHER: usize = 500;

    async fn renew(self: &Arc<Self>, groups: Vec<Vec<Renewal<Placed>>>) -> Vec<(usize, RenewReply)> {
        let renewing = groups.iter().map(|group| self.renew_in_session(group));
        join_all(renewing).await.into_iter().flatten().collect()
    }

    /// As Curator does: the new node has the number of the one before, and so its place.
    async fn downgrade(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> Result<(), BackendError> {
        let number = name(&placed.nodes.paths[0])
            .rsplit_once("__")
            .map_or("", |(_, number)| number);
        let read = self.names.contender(id, Mode::Read);
        let path = format!("{}/{read}{number}", placed.spot.folder);
        let mut value = placed.value.clone();
        (value.mode, value.granted_at) = (Mode::Read, Some(placed.nodes.czxid));
        let create = self.create(path, &value, NodeMode::Ephemeral);
        match self.replace_nodes(id, placed, value, &[create]).await {
            // The renewal reports a loss.
            Ok(_) => Ok(()),
            Err(error) => {
                if error.effect() == Effect::Unknown {
                    self.table.unanswered(id, placed.own_lease.ends);
                }
                Err(error)
            }
        }
    }
}

impl Locks {
    /// Renews claims of one session. Returns the replies with the positions of their requests.
    async fn renew_in_session(self: &Arc<Self>, renewals: &[Renewal<Placed>]) -> Vec<(usize, RenewReply)> {
        let (mut together, mut alone) = (Vec::from_iter(renewals), Vec::new());
        // Each round that is refused sets one claim aside.
        let renewed = loop {
            let Some(first) = together.first() else {
                break Ok(self.now());
            };
            let checks = together.iter().enumerate().flat_map(|(at, one)| {
                let checks = one.placed.nodes.unchanged();
                checks.into_iter().map(move |check| (at, check))
            });
            let (owners, checks): (Vec<usize>, Vec<Op>) = checks.unzip();
            let sent = self.now();
            match first.placed.spot.session.client.multi(&checks).await {
                Ok(Outcome::Done { .. }) => break Ok(sent),
                Ok(Outcome::Refused { index, code }) => match owners.get(index) {
                    Some(at) if is_changed(code) || code == Code::NO_AUTH => {
                        alone.push(together.swap_remove(*at));
                    }
                    _ => break Err(refused(code)),
                },
                Err(error) if is_session_end(&error) => alone.append(&mut together),
                Err(error) => break Err(error),
            }
        };
        let together = together.into_iter().map(|one| match &renewed {
            Ok(sent) => (one.at, self.renewed(&one.request, &one.placed, *sent)),
            Err(error) => (one.at, RenewReply::Unknown(error.clone())),
        });
        let mut replies: Vec<_> = together.collect();
        let alone = alone
            .into_iter()
            .map(async |one| (one.at, self.renew_alone(one).await));
        replies.extend(join_all(alone).await);
        replies
    }

    /// Renews a claim with a node that was changed, is missing, or must not be read, or of which the session has ended.
    async fn renew_alone(self: &Arc<Self>, renewal: &Renewal<Placed>) -> RenewReply {
        let id = renewal.request.claim.id;
        match self.confirm(id, &renewal.placed).await {
            Ok(Some(placed)) => self.renewed(&renewal.request, &placed, placed.nodes.proved_at),
            Ok(None) => self.table.gone(id),
            Err(error) => RenewReply::Unknown(error),
        }
    }

    /// Renews a claim that was checked by a request which was sent at `sent`.
    fn renewed(&self, request: &RenewRequest, placed: &Placed, sent: Instant) -> RenewReply {
        let length = self.profile.limits.lease(request.lease);
        let asked = |placed: &Placed| placed.ends_after(sent, length, placed.granted.is_some());
        self.table.renewed(request, placed.nodes.czxid, sent, asked)
    }
}
