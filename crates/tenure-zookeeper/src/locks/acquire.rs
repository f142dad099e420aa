//! Acquiring: places the node of a claim, or looks which contenders are before it.

use std::sync::Arc;

use futures_util::future::join;
use tenure_backend::{
    AcquireReply, BackendError, Claim, ClaimId, Evidence, Fairness, Grant, HANDOVER_WINDOW, Instant, Mode,
};
use tenure_contenders::{Acquire, ClaimLease, Contenders as _, Known, placed_but, tokens};

use super::contenders::{Contender, Standing, Target, standing};
use super::evidence::LockEvidence;
use super::kinds::check_take;
use super::placed::{Nodes, Placed, Spot};
use super::requests::Seen;
use super::store::Locks;
use crate::client::{Code, Mode as NodeMode, Op};
use crate::config::Layout;
use crate::error::refused;

impl Acquire for Locks {
    async fn place(
        self: &Arc<Self>,
        claim: &Claim,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        check_take(claim.mode)?;
        let id = claim.at.id;
        let in_flight = match self.table.know(id) {
            Known::Unplaced { spot, is_in_flight } => {
                spot.filter(|spot| is_in_flight && spot.session.is_alive())
            }
            _ => None,
        };
        let spot = match in_flight {
            Some(spot) => {
                if let Some((nodes, ..)) = self.find(id, &spot).await? {
                    self.table.answered(id);
                    let placed = self.put(claim, spot, nodes);
                    return self.poll(claim, placed).await;
                }
                spot
            }
            None => {
                self.table.answered(id);
                self.reserve(claim).await?
            }
        };
        // The session may have been opened slowly.
        if self.now() > not_after {
            self.table.unplace(id);
            return Ok(AcquireReply::TooLate);
        }
        if claim.fairness == Fairness::Unfair {
            let mut standing = self.look(claim, &spot, None, None).await?;
            if standing != Some(Standing::Granted) {
                // The server may not have seen a release that the caller knows of.
                spot.session.client.sync(&spot.folder).await?;
                standing = self.look(claim, &spot, None, None).await?;
            }
            if let Some(standing) = standing.filter(|standing| *standing != Standing::Granted) {
                self.table.unplace(id);
                return self.refused(claim, standing);
            }
        }
        match self.create_nodes(claim, spot, Vec::new(), not_after).await? {
            Some(placed) => placed,
            None => {
                self.table.unplace(id);
                Ok(self.waiting(claim))
            }
        }
    }

    async fn poll(self: &Arc<Self>, claim: &Claim, placed: Placed) -> Result<AcquireReply, BackendError> {
        let standing = self.look(claim, &placed.spot, Some(&placed), None).await?;
        let is_proved = self.now() - placed.nodes.proved_at < HANDOVER_WINDOW;
        self.conclude(claim, placed, standing, is_proved).await
    }
}

impl Locks {
    /// Creates the nodes of a claim after `ops`, in one step, and answers by its state. Removes the nodes if the claim came too late.
    /// `None` if nothing was done: one of the `ops` was refused, or another claim has the lock in the layout `ephemeral`.
    pub(super) async fn create_nodes(
        self: &Arc<Self>,
        claim: &Claim,
        spot: Spot,
        mut ops: Vec<Op>,
        not_after: Instant,
    ) -> Result<Option<Result<AcquireReply, BackendError>>, BackendError> {
        let (id, folder) = (claim.at.id, &spot.folder);
        let (paths, mode) = match self.config.layout {
            Layout::Ephemeral => (vec![self.names.own(id), folder.clone()], NodeMode::Ephemeral),
            _ => {
                let name = self.names.contender(id, claim.mode);
                (vec![format!("{folder}/{name}")], NodeMode::EphemeralSequential)
            }
        };
        let (value, may_fail) = (self.value(claim), !ops.is_empty());
        ops.extend(paths.into_iter().map(|path| self.create(path, &value, mode)));
        let client = &spot.session.client;
        // One after the other on the connection, so the children are those after the create.
        let (created, seen) = join(self.carry_out(client, &ops), self.children(client, folder)).await;
        let error = match created {
            Ok(Ok(nodes)) => {
                let placed = self.put(claim, spot, nodes);
                let settled = self.settle(claim, placed, seen.unwrap_or_default(), not_after);
                return Ok(Some(settled.await));
            }
            Ok(Err((_, code))) if may_fail || code == Code::NODE_EXISTS => return Ok(None),
            Ok(Err((_, code))) => refused(code),
            Err(error) => error,
        };
        self.not_placed(id, &spot, &error);
        Err(error)
    }

    /// Records the nodes of a claim.
    pub(super) fn put(&self, claim: &Claim, spot: Spot, nodes: Nodes) -> Placed {
        let placed = Placed {
            nodes,
            value: self.value(claim),
            granted: None,
            target: None,
            asked: self.profile.limits.lease(claim.lease),
            own_lease: ClaimLease::new(spot.session.counts_from(), spot.session.timeout()),
            spot,
        };
        self.table.place(claim.at.id, placed.clone());
        placed
    }

    /// Answers by the state of a claim whose node was created, and which is among the contenders that were seen. Removes the node
    /// if the claim came too late.
    async fn settle(
        self: &Arc<Self>,
        claim: &Claim,
        placed: Placed,
        seen: Seen,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let standing = self.look(claim, &placed.spot, Some(&placed), Some(seen)).await;
        let standing = standing.map_err(placed_but)?;
        if self.now() > not_after {
            self.leave(claim.at.id, &placed).await?;
            return Ok(AcquireReply::TooLate);
        }
        self.conclude(claim, placed, standing, true).await
    }

    /// Answers by the state of a claim, which is `None` if its node is missing. Removes the node if the claim must not wait.
    /// `is_proved` says that the claim was not evicted before it was asked for.
    async fn conclude(
        self: &Arc<Self>,
        claim: &Claim,
        placed: Placed,
        standing: Option<Standing>,
        is_proved: bool,
    ) -> Result<AcquireReply, BackendError> {
        let id = claim.at.id;
        match standing {
            Some(Standing::Granted) => {}
            Some(Standing::Waits { behind }) if claim.fairness == Fairness::Fifo => {
                let target = match behind {
                    Some(node) => Target::Node(node),
                    None => Target::Folder(self.names.permits(&claim.at.key)),
                };
                let ends = placed.ends_after(self.now(), placed.asked, false);
                self.watched.set(id, target.clone());
                self.table.update(id, placed.nodes.czxid, |placed| {
                    (placed.target, placed.own_lease.ends) = (Some(target), ends);
                });
                return Ok(self.waiting(claim));
            }
            Some(standing) => {
                self.leave(id, &placed).await?;
                return self.refused(claim, standing);
            }
            None => {
                let own = self.own(id, &placed).await.map_err(placed_but)?;
                return Ok(own.map_or(AcquireReply::Ended, |_| self.waiting(claim)));
            }
        }
        let proved = match claim.mode {
            Mode::Permits { take, .. } if !placed.has_left_queue() => self.take(claim, &placed, take).await,
            _ if is_proved => Ok(Some(placed)),
            _ => self.confirm(id, &placed).await,
        };
        let Some(placed) = proved.map_err(placed_but)? else {
            return Ok(AcquireReply::Ended);
        };
        let has_node = placed
            .spot
            .session
            .wait_for_node(self.config.command_timeout)
            .await;
        has_node.map_err(placed_but)?;
        Ok(self.grant(id, &placed))
    }

    /// Answers a claim that holds its lock, as was proved of it.
    fn grant(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> AcquireReply {
        let proved_at = placed.nodes.proved_at;
        let ends = placed.ends_after(proved_at, placed.asked, true);
        let held_from = match placed.granted {
            // The whole lease is shown, of which a part has passed.
            None => ends - placed.spot.session.timeout(),
            Some(_) if ends == placed.own_lease.ends => placed.own_lease.held_from,
            Some(_) => proved_at,
        };
        let mut lease = ClaimLease { held_from, ends };
        let tokens = placed
            .granted
            .or_else(|| tokens(placed.nodes.czxid, placed.value.grants));
        let is_there = self.table.update(id, placed.nodes.czxid, |placed| {
            match placed.granted {
                // The end of a waiter's lease is not proved, and may be later.
                None => placed.own_lease = lease,
                Some(_) => lease = placed.own_lease.restart(lease),
            }
            placed.granted = tokens;
            placed.nodes.proved_at = proved_at;
        });
        // The claim may have ended meanwhile.
        if !is_there {
            return AcquireReply::Ended;
        }
        let mut grant = Grant::new(tokens, lease.held_from, lease.length());
        grant.confirmed_from = proved_at;
        grant.evidence = Some(Evidence::new(LockEvidence::new(id, placed, self)));
        AcquireReply::Granted(grant)
    }

    /// Removes the node of a claim that must not wait, or came too late.
    async fn leave(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> Result<(), BackendError> {
        self.remove(placed).await.map_err(placed_but)?;
        self.table.unplace(id);
        Ok(())
    }

    /// Returns the state of a claim behind the contenders before its node; without a node, behind all. `None` if its node is
    /// missing. Reads the contenders, unless the claim is among those that were `seen`.
    async fn look(
        &self,
        claim: &Claim,
        spot: &Spot,
        own: Option<&Placed>,
        seen: Option<Seen>,
    ) -> Result<Option<Standing>, BackendError> {
        if own.is_some_and(|own| own.granted.is_some() || own.has_left_queue()) {
            return Ok(Some(Standing::Granted));
        }
        let (client, mode) = (&spot.session.client, claim.mode);
        if self.config.layout == Layout::Ephemeral {
            return self.look_at_node(client, &spot.folder).await.map(Some);
        }
        let is_own = |one: &Contender| own.is_some_and(|own| one.path == own.nodes.paths[0]);
        let (mut earlier, names) = match seen {
            Some(seen) if seen.0.iter().any(is_own) => seen,
            _ => self.children(client, &spot.folder).await?,
        };
        if own.is_some() {
            let Some(at) = earlier.iter().position(is_own) else {
                return Ok(None);
            };
            earlier.truncate(at);
        }
        // A claim that was answered before has the lock's kind.
        if own.is_none_or(|own| own.target.is_none())
            && let Some(other) = self.other_kind(claim, client, &earlier, &names).await?
            && other != mode.kind()
        {
            return Ok(Some(Standing::OtherKind(other)));
        }
        let Mode::Permits { take, of } = mode else {
            return Ok(Some(standing(mode, &earlier)));
        };
        Ok(Some(match standing(Mode::Exclusive, &earlier) {
            Standing::Granted if !self.has_room(client, &claim.at.key, take, of).await? => {
                Standing::Waits { behind: None }
            }
            standing => standing,
        }))
    }
}
