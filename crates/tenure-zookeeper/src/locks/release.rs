//! Releasing: removes the nodes of a claim of this client, or evicts other contenders.

use std::sync::Arc;

use tenure_backend::{
    AcquireReply, BackendError, Cause, ClaimId, ClaimRef, Effect, HANDOVER_WINDOW, HolderId, Kind, Loss,
    ReleaseReply, ReleaseRequest, ReleaseTarget, Successor, TURN,
};
use tokio::time::sleep;

use super::contenders::Name;
use super::inspect::Holder;
use super::names::{name, uuid_of};
use super::requests::{Found, MAX_REPEATS, delete_all, unsettled};
use super::sessions::add_mark;
use super::store::Locks;
use super::table::{Known, Placed, Spot};
use super::value::Value;
use crate::client::{Client, Code, Done, Mode, Op, Outcome, code, is_session_end};
use crate::config::Layout;

/// What a release did.
#[derive(Default)]
struct Released {
    freed: Vec<HolderId>,
    /// The reply for a successor that was placed in the same step.
    successor: Option<Result<AcquireReply, BackendError>>,
}

impl Locks {
    pub(super) async fn release(
        self: Arc<Self>,
        request: ReleaseRequest,
    ) -> Result<ReleaseReply, BackendError> {
        if let Some(successor) = request.checked_successor()? {
            successor.check(&self.profile.limits)?;
        }
        let released = match (&request.target, &request.cause) {
            (target, Cause::Evicted { by }) => self.evict(target, by.clone()).await?,
            (ReleaseTarget::Claim(claim), _) => self.release_own(claim, request.successor.as_ref()).await?,
            (target, _) => self.evict(target, None).await?,
        };
        let successor = match (request.successor, released.successor) {
            (Some(successor), None) => Some(self.acquire(successor.claim, successor.not_after).await),
            (_, placed) => placed,
        };
        Ok(ReleaseReply::Done {
            freed: released.freed.into_iter().collect(),
            others: None,
            successor: successor.map(|reply| match reply {
                // The poll after a turn returns the error.
                Err(_) | Ok(AcquireReply::Waiting { .. }) => AcquireReply::Waiting {
                    ahead: None,
                    poll_after: TURN,
                },
                Ok(reply) => reply,
            }),
        })
    }

    /// Releases a claim of this client.
    async fn release_own(
        self: &Arc<Self>,
        claim: &ClaimRef,
        successor: Option<&Successor>,
    ) -> Result<Released, BackendError> {
        let turn = self.table.turn(claim).await;
        let released = self.release_in_turn(claim.id, successor).await;
        match &released {
            Ok(_) => self.table.end(claim.id, self.now(), None),
            Err(error) if error.effect() == Effect::None => self.table.cancel_release(claim.id),
            Err(_) => {}
        }
        self.table.end_turn(claim.id, turn);
        released
    }

    async fn release_in_turn(
        self: &Arc<Self>,
        id: ClaimId,
        successor: Option<&Successor>,
    ) -> Result<Released, BackendError> {
        let mut released = Released::default();
        let was_placed = match self.table.begin_release(id) {
            (_, Some(in_flight)) => self.withdraw(id, &in_flight).await?,
            (Some(placed), None) => {
                if let Some(successor) = successor {
                    released.successor = self.hand_over(&placed, successor).await?;
                }
                released.successor.is_some() || self.unlock(id, &placed).await?
            }
            (None, None) => false,
        };
        released.freed.extend(was_placed.then_some(HolderId::Claim(id)));
        Ok(released)
    }

    /// Removes a claim's nodes, unless it was evicted. Returns false if the claim was lost before.
    async fn unlock(&self, id: ClaimId, placed: &Placed) -> Result<bool, BackendError> {
        let mut known = placed.clone();
        for _ in 0..MAX_REPEATS {
            let client = &known.spot.session.client;
            let removed = match &*known.deletes() {
                [Op::Delete(node, version)] => client.delete(node, *version).await,
                deletes => client.multi(deletes).await.and_then(|outcome| match outcome {
                    Outcome::Done { .. } => Ok(()),
                    Outcome::Refused { code, .. } => Err(crate::error::refused(code)),
                }),
            };
            match removed {
                Ok(()) => return Ok(true),
                Err(error) if is_session_end(&error) => {
                    self.lose(id, &known, Loss::Session);
                    return Ok(false);
                }
                Err(error) if matches!(code(&error), Some(Code::NO_NODE | Code::BAD_VERSION)) => {
                    match self.own(id, &known).await? {
                        Some(own) => known = own,
                        None => return Ok(false),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Err(unsettled())
    }

    /// Removes the nodes of a claim, whatever was written to them. Returns whether they were there.
    pub(super) async fn remove(&self, placed: &Placed) -> Result<bool, BackendError> {
        delete_all(&placed.spot.session.client, &placed.nodes).await
    }

    /// Removes the nodes that a request may have created which was not answered. Returns whether there were some. Looks for them
    /// again a session's timeout later: a leader that has lost its majority does not know of all requests.
    pub(super) async fn withdraw(self: &Arc<Self>, id: ClaimId, spot: &Spot) -> Result<bool, BackendError> {
        let was_there = match self.remove_found(id, spot).await {
            Err(error) if is_session_end(&error) => return Ok(false),
            removed => removed?,
        };
        let (locks, spot) = (Arc::downgrade(self), spot.clone());
        tokio::spawn(async move {
            loop {
                // sleep: until a late request has ended.
                sleep(spot.session.timeout()).await;
                let Some(locks) = locks.upgrade().filter(|locks| !locks.is_closed()) else {
                    return;
                };
                match locks.remove_found(id, &spot).await {
                    Err(error) if !is_session_end(&error) => {}
                    _ => return,
                }
            }
        });
        Ok(was_there)
    }

    async fn remove_found(&self, id: ClaimId, spot: &Spot) -> Result<bool, BackendError> {
        match self.find(id, spot).await? {
            Some(Found { nodes, .. }) => delete_all(&spot.session.client, &nodes).await,
            None => Ok(false),
        }
    }

    /// Removes a claim's node and creates that of its successor in one step. `None` if that had no effect.
    async fn hand_over(
        self: &Arc<Self>,
        placed: &Placed,
        successor: &Successor,
    ) -> Result<Option<Result<AcquireReply, BackendError>>, BackendError> {
        let (claim, not_after) = (&successor.claim, successor.not_after);
        let is_semaphore = matches!(claim.mode.kind(), Kind::Semaphore { .. });
        if is_semaphore || self.config.layout == Layout::Ephemeral {
            return Ok(None);
        }
        let turn = self.table.turn(&claim.at).await;
        let id = claim.at.id;
        let mut reply = Ok(None);
        if matches!(self.table.know(id), Known::Unplaced(None)) && self.now() <= not_after {
            let spot = placed.spot.clone();
            self.table.reserve(id, &spot);
            let path = format!("{}/{}", spot.folder, self.names.contender(id, claim.mode));
            let mut ops = placed.deletes();
            ops.push(Op::Create(
                path,
                self.value(claim).write(),
                Mode::EphemeralSequential,
                self.config.acl,
            ));
            let sent = self.now();
            reply = match spot.session.client.multi(&ops).await {
                Ok(Outcome::Done { zxid, results }) => match results.into_iter().next_back() {
                    Some(Done::Created(path)) => {
                        let found = Found {
                            nodes: vec![path],
                            czxid: zxid,
                            version: 0,
                        };
                        let placed = self.put(claim, spot, found);
                        Ok(Some(self.settle(claim, placed, sent, not_after).await))
                    }
                    _ => Ok(None),
                },
                Ok(Outcome::Refused { .. }) => Ok(None),
                Err(error) => {
                    self.table.not_placed(id, &error, self.now());
                    Err(error)
                }
            };
            if matches!(reply, Ok(None)) {
                self.table.unplace(id);
            }
        }
        self.table.end_turn(id, turn);
        reply
    }

    /// Evicts one contender of a lock, or all that hold it.
    async fn evict(
        self: &Arc<Self>,
        target: &ReleaseTarget,
        by: Option<Arc<str>>,
    ) -> Result<Released, BackendError> {
        let client = self.any_session().await?.client.clone();
        // The server may not have seen yet what is to be evicted.
        client.sync("/").await?;
        // The last contender that held the lock at first: those that follow when it has left are not evicted.
        let mut last_holder = None;
        for _ in 0..MAX_REPEATS {
            let mut all = self
                .contenders_of(&client, &self.names.lock(target.key()))
                .await?;
            if let ReleaseTarget::Claim(claim) = target {
                // Curator's request to revoke the claim may have replaced what was written to its node.
                for one in all.iter_mut().filter(|one| one.value.is_none()) {
                    if Name::read(name(&one.nodes[0]))
                        .is_some_and(|name| name.uuid == Some(uuid_of(claim.id)))
                    {
                        (one.id, one.value) = (
                            HolderId::Claim(claim.id),
                            Some(Value::unknown(claim.id, one.mode)),
                        );
                    }
                }
            }
            let last_holder = *last_holder.get_or_insert_with(|| {
                let holders = all.iter().filter(|one| one.behind.is_none());
                holders.map(|one| one.czxid).max()
            });
            let is_target = |one: &&Holder| match target {
                ReleaseTarget::Claim(claim) => one.id == HolderId::Claim(claim.id),
                ReleaseTarget::Foreign { id, .. } => one.id == HolderId::Foreign(id.clone()),
                ReleaseTarget::All(_) => one.behind.is_none() && Some(one.czxid) <= last_holder,
            };
            let (mut released, mut marked) = (Released::default(), Vec::new());
            let mut has_changed = false;
            for one in all.iter().filter(is_target) {
                match self.mark(&client, one, by.clone()).await? {
                    true if one.behind.is_some() || one.value.is_none() => {
                        released.freed.push(one.id.clone())
                    }
                    true => marked.push(one),
                    false => has_changed = true,
                }
            }
            if !marked.is_empty() {
                // sleep: the cooldown, also if none is asked for: an acquire relies on it that was answered meanwhile. A claim at
                // the head of the queue is marked like a holder: only its client knows whether it was granted.
                sleep(HANDOVER_WINDOW).await;
            }
            for one in marked {
                // If the holder has removed it first, this eviction was the reason.
                delete_all(&client, &one.nodes).await?;
                released.freed.push(one.id.clone());
            }
            if !has_changed || !released.freed.is_empty() {
                return Ok(released);
            }
        }
        Err(unsettled())
    }

    /// Marks a holder as evicted, so that no confirmation of its client succeeds from now on, and rings the bell of its session.
    /// Removes a foreign contender at once, and one that waits behind another. Returns false if one of these has left or changed.
    async fn mark(&self, client: &Client, one: &Holder, by: Option<Arc<str>>) -> Result<bool, BackendError> {
        let Some(value) = &one.value else {
            return delete_all(client, &one.nodes).await;
        };
        let mark = value.clone().evicted(by);
        let bell = self.names.bell(one.session);
        for _ in 0..MAX_REPEATS {
            let first = one.nodes[0].clone();
            let mut ops = match &one.behind {
                Some(behind) => vec![
                    Op::Check(behind.clone(), None),
                    Op::Delete(first, Some(one.version)),
                ],
                None => vec![Op::SetData(first, mark.write(), Some(one.version))],
            };
            let marking = ops.len();
            match client.get_data(&bell).await {
                Ok((data, stat)) => ops.push(Op::SetData(
                    bell.clone(),
                    add_mark(&data, &mark),
                    Some(stat.version),
                )),
                // The client hears of the eviction when it renews the claim.
                Err(error) if code(&error) == Some(Code::NO_NODE) => {}
                Err(error) => return Err(error),
            }
            match client.multi(&ops).await? {
                Outcome::Done { .. } => return Ok(true),
                Outcome::Refused { index, .. } if index < marking => return Ok(false),
                // Another evictor has rung the bell, or the session has ended.
                Outcome::Refused { .. } => {}
            }
        }
        Err(unsettled())
    }
}
