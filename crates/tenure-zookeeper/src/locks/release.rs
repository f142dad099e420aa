//! What the shared part asks of ZooKeeper: to end claims, and to evict contenders.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, ClaimId, Clock, HANDOVER_WINDOW, Mode, Profile, ReleaseTarget, Successor,
};
use tenure_contenders::{Contenders, Table, Value};
use tokio::time::sleep;

use super::contenders::Name;
use super::inspect::Holder;
use super::names::{name, uuid_of};
use super::placed::{Placed, Spot};
use super::requests::{MAX_REPEATS, unsettled};
use super::sessions::add_mark;
use super::store::Locks;
use crate::client::{Op, Outcome, is_session_end};
use crate::config::Layout;
use crate::error::found;

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
        let deleted = self.change(id, placed, |known| known.nodes.deletes()).await?;
        Ok(deleted.is_some())
    }

    async fn remove(self: &Arc<Self>, placed: &Placed) -> Result<bool, BackendError> {
        self.delete_all(&placed.spot.session.client, &placed.nodes.paths)
            .await
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
        let (claim, spot) = (&successor.claim, placed.spot.clone());
        if matches!(claim.mode, Mode::Permits { .. }) || self.config.layout == Layout::Ephemeral {
            return Ok(None);
        }
        self.table.reserve(claim.at.id, &spot);
        let deletes = placed.nodes.deletes();
        self.create_nodes(claim, spot, deletes, successor.not_after).await
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
            return self.delete_all(client, &one.nodes).await;
        };
        let mark = value.clone().evicted(by);
        let node = self.names.session_node(one.stat.ephemeral_owner);
        for _ in 0..MAX_REPEATS {
            let first = one.nodes[0].clone();
            let mut ops = match &one.behind {
                Some(behind) => vec![
                    Op::Check(behind.clone(), None),
                    Op::Delete(first, Some(one.stat.version)),
                ],
                None => vec![Op::SetData(first, mark.write().into(), Some(one.stat.version))],
            };
            let marking = ops.len();
            // Without a session node, the client hears of the eviction when it renews the claim.
            if let Some((data, stat)) = found(client.get_data(&node).await)? {
                let written = add_mark(&data, &mark);
                ops.push(Op::SetData(node.clone(), written, Some(stat.version)));
            }
            match client.multi(&ops).await? {
                Outcome::Done { .. } => return Ok(true),
                Outcome::Refused { index, .. } if index < marking => return Ok(false),
                // Another evictor has written to the session node, or the session has ended.
                Outcome::Refused { .. } => {}
            }
        }
        Err(unsettled())
    }

    async fn remove_marked(self: &Arc<Self>, marked: &Holder) -> Result<(), BackendError> {
        let client = &self.any_session().await?.client;
        self.delete_all(client, &marked.nodes).await?;
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
            Some((nodes, ..)) => self.delete_all(&spot.session.client, &nodes.paths).await,
            None => Ok(false),
        }
    }
}
