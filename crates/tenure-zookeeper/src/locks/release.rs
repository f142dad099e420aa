//! What the shared part asks of ZooKeeper: to end claims, and to evict contenders.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use tenure_backend::{
    AcquireReply, BackendError, ClaimId, Clock, HANDOVER_WINDOW, HolderId, Loss, Mode as LockMode, Profile,
    ReleaseTarget, Successor,
};
use tenure_contenders::{Contenders, Table, Value};
use tokio::time::sleep;

use super::contenders::Name;
use super::inspect::Holder;
use super::names::{name, uuid_of};
use super::placed::{Placed, Spot};
use super::requests::{Found, MAX_REPEATS, delete_all, delete_unchanged, unsettled};
use super::sessions::add_mark;
use super::store::Locks;
use crate::client::{Code, Done, Mode, Op, Outcome, code, is_session_end};
use crate::config::Layout;

impl Contenders for Locks {
    type Placed = Placed;
    type Contender = Holder;

    // A claim at the head of the queue is granted by an answer that may be as old.
    const MIN_COOLDOWN: Duration = HANDOVER_WINDOW;

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn table(&self) -> &Table<Placed> {
        &self.table
    }

    fn address(&self) -> String {
        self.config.address()
    }

    fn close(&self) {
        self.table.close();
        self.sessions.close();
        self.table.forget();
    }

    async fn unlock(self: &Arc<Self>, id: ClaimId, placed: &Placed) -> Result<bool, BackendError> {
        let mut known = placed.clone();
        for _ in 0..MAX_REPEATS {
            match delete_unchanged(&known).await {
                Ok(None) => return Ok(true),
                Ok(Some(refusal)) => match self.own_after(id, &known, refusal).await? {
                    Some(own) => known = own,
                    None => return Ok(false),
                },
                Err(error) if is_session_end(&error) => {
                    self.lose(id, &known, Loss::Session);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Err(unsettled())
    }

    async fn remove(self: &Arc<Self>, placed: &Placed) -> Result<bool, BackendError> {
        delete_all(&placed.spot.session.client, &placed.nodes).await
    }

    /// Looks for the claim's nodes again a session's timeout later: a leader that has lost its majority does not know of all
    /// requests.
    async fn withdraw(self: &Arc<Self>, id: ClaimId, spot: &Spot) -> Result<bool, BackendError> {
        let was_there = match self.remove_found(id, spot).await {
            Err(error) if is_session_end(&error) => return Ok(false),
            removed => removed?,
        };
        let (locks, spot) = (Arc::downgrade(self), spot.clone());
        self.spawn(async move {
            loop {
                // sleep: until a late request has ended.
                sleep(spot.session.timeout()).await;
                let Some(locks) = locks.upgrade() else { return };
                match locks.remove_found(id, &spot).await {
                    Err(error) if !is_session_end(&error) => {}
                    _ => return,
                }
            }
        });
        Ok(was_there)
    }

    async fn replace(
        self: &Arc<Self>,
        placed: &Placed,
        successor: &Successor,
    ) -> Result<Option<Result<AcquireReply, BackendError>>, BackendError> {
        let (claim, id) = (&successor.claim, successor.claim.at.id);
        if matches!(claim.mode, LockMode::Permits { .. }) || self.config.layout == Layout::Ephemeral {
            return Ok(None);
        }
        let spot = placed.spot.clone();
        self.table.reserve(id, &spot);
        let path = format!("{}/{}", spot.folder, self.names.contender(id, claim.mode));
        let mut ops = placed.deletes();
        let data = self.value(claim).write().into();
        ops.push(Op::Create(path, data, Mode::EphemeralSequential, self.config.acl));
        let (client, sent) = (&spot.session.client, self.now());
        let (replaced, seen) = join(client.multi(&ops), self.children(client, &spot.folder)).await;
        let done = match replaced {
            Ok(Outcome::Done { zxid, results }) => results.into_iter().next_back().zip(Some(zxid)),
            Ok(Outcome::Refused { .. }) => None,
            Err(error) => {
                self.not_placed(id, &spot, &error);
                return Err(error);
            }
        };
        let Some((Done::Created(path), czxid)) = done else {
            return Ok(None);
        };
        let nodes = vec![path];
        let found = Found { nodes, czxid };
        let placed = self.put(claim, spot, found, sent);
        let seen = seen.unwrap_or_default();
        Ok(Some(self.settle(claim, placed, seen, successor.not_after).await))
    }

    async fn contenders(self: &Arc<Self>, target: &ReleaseTarget) -> Result<Vec<Holder>, BackendError> {
        let client = &self.any_session().await?.client;
        // The server may not have seen yet what is to be evicted.
        client.sync("/").await?;
        let lock = self.names.lock(target.key());
        let mut all = self.holders_of(client, &lock).await?;
        if let ReleaseTarget::Claim(claim) = target {
            // Curator's request to revoke the claim may have replaced what was written to its node.
            for one in all.iter_mut().filter(|one| one.value.is_none()) {
                if Name::read(name(&one.nodes[0])).is_some_and(|name| name.uuid == Some(uuid_of(claim.id))) {
                    one.id = HolderId::Claim(claim.id);
                    one.value = Some(Value::unknown(claim.id, one.mode));
                }
            }
        }
        Ok(all)
    }

    async fn mark(
        self: &Arc<Self>,
        all: &[Holder],
        at: usize,
        by: Option<Arc<str>>,
    ) -> Result<bool, BackendError> {
        let client = &self.any_session().await?.client;
        let one = &all[at];
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
                None => vec![Op::SetData(first, mark.write().into(), Some(one.version))],
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

    async fn remove_marked(self: &Arc<Self>, marked: &Holder) -> Result<(), BackendError> {
        delete_all(&self.any_session().await?.client, &marked.nodes).await?;
        Ok(())
    }

    /// A session that has ended has taken its nodes along.
    fn ends_by_itself(&self, _: &Spot, error: &BackendError) -> bool {
        is_session_end(error)
    }
}

impl Locks {
    async fn remove_found(&self, id: ClaimId, spot: &Spot) -> Result<bool, BackendError> {
        match self.find(id, spot).await? {
            Some(Found { nodes, .. }) => delete_all(&spot.session.client, &nodes).await,
            None => Ok(false),
        }
    }
}
