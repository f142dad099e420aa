//! Confirming: proves that a claim was not evicted, or finds out why it was lost.

use std::sync::Arc;

use tenure_backend::{BackendError, ClaimId, Loss};
use tenure_contenders::{Contenders as _, Value, remove_after_cooldown};

use super::placed::{Nodes, Placed};
use super::requests::{MAX_REPEATS, Refusal, unsettled};
use super::sessions::marks;
use super::store::Locks;
use crate::client::{Code, Op, is_session_end};
use crate::error::{found, refused};

impl Locks {
    /// Proves, by an answer of the leader, that a claim was not evicted. Returns the claim as it is known then; `None` if it was
    /// lost.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
    ) -> Result<Option<Placed>, BackendError> {
        let confirmed = self.change(id, placed, |known| known.nodes.unchanged()).await?;
        Ok(confirmed.map(|(mut known, done)| {
            known.nodes.proved_at = done.proved_at;
            known
        }))
    }

    /// Carries out a transaction that begins with the nodes of a claim, in their order, and repeats it if they have changed without
    /// an eviction. Returns the claim as it was known then, and the nodes that were created; `None` if the claim was lost, which is
    /// recorded.
    pub(super) async fn change(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
        ops: impl Fn(&Placed) -> Vec<Op>,
    ) -> Result<Option<(Placed, Nodes)>, BackendError> {
        let mut known = placed.clone();
        for _ in 0..MAX_REPEATS {
            match self.carry_out(&known.spot.session.client, &ops(&known)).await {
                Ok(Ok(nodes)) => return Ok(Some((known, nodes))),
                Ok(Err(refusal)) => match self.own_after(id, &known, refusal).await? {
                    Some(own) => known = own,
                    None => return Ok(None),
                },
                Err(error) if is_session_end(&error) => {
                    self.lose(id, placed, Loss::Session);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        Err(unsettled())
    }

    /// Replaces the nodes of a claim in one step. Returns the claim with the new ones; `None` if it was lost.
    pub(super) async fn replace_nodes(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
        value: Value,
        creates: &[Op],
    ) -> Result<Option<Placed>, BackendError> {
        let ops = |known: &Placed| [&known.nodes.deletes(), creates].concat();
        let Some((known, nodes)) = self.change(id, placed, ops).await? else {
            return Ok(None);
        };
        let (replaced, is_there) = self.adopt(id, &known, nodes, value);
        if !is_there {
            // If this fails, the withdrawal of the claim finds the nodes.
            let _ = self.remove(&replaced).await;
        }
        Ok(Some(replaced).filter(|_| is_there))
    }

    /// Reads a claim after a transaction was refused that names its nodes in their order. Returns the claim as it is known then;
    /// `None` if it was lost, which is recorded. Fails if the claim is not the reason for the refusal.
    async fn own_after(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
        (index, code): Refusal,
    ) -> Result<Option<Placed>, BackendError> {
        if index >= placed.nodes.paths.len() || !is_changed(code) {
            return Err(refused(code));
        }
        if index == 0 {
            return self.own(id, placed).await;
        }
        // Another program has deleted a part of the claim. In the layout `ephemeral` another client may have that node next.
        let mut left = placed.clone();
        left.nodes.paths.remove(index);
        self.remove(&left).await?;
        self.lose(id, placed, Loss::Missing);
        Ok(None)
    }

    /// Reads a claim whose first node was changed or is missing. Returns the claim as it is known then: a polite request of Curator's to
    /// revoke it changes nothing. `None` if it was lost, which is recorded.
    pub(super) async fn own(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
    ) -> Result<Option<Placed>, BackendError> {
        let own = match self.find(id, &placed.spot).await {
            Err(error) if is_session_end(&error) => Err(Loss::Session),
            found => match found? {
                // A request that was not answered has replaced the nodes.
                Some((nodes, ..)) if nodes.czxid != placed.nodes.czxid => {
                    self.table.answered(id);
                    Ok(nodes)
                }
                Some((nodes, data, stat)) if nodes.paths == placed.nodes.paths => {
                    match Value::read(&data).filter(|mark| mark.is_evicted && mark.id == id) {
                        Some(mark) => {
                            remove_after_cooldown(self, placed);
                            Err(Loss::Evicted { by: mark.evictor() })
                        }
                        None => Ok(Nodes {
                            version: stat.version,
                            ..nodes
                        }),
                    }
                }
                found => {
                    // The other permits of a claim of which another program has deleted the first one.
                    if let Some((nodes, ..)) = found {
                        self.delete_all(&placed.spot.session.client, &nodes.paths).await?;
                    }
                    Err(self.loss(id, placed).await?)
                }
            },
        };
        match own {
            Ok(nodes) => Ok(Some(self.adopt(id, placed, nodes, placed.value.clone()).0)),
            Err(loss) => {
                self.lose(id, placed, loss);
                Ok(None)
            }
        }
    }

    /// Records the nodes of a claim as they are. Returns the claim with them, and whether it was recorded: a claim that has ended, or
    /// is being released, stays as it is.
    fn adopt(&self, id: ClaimId, placed: &Placed, nodes: Nodes, value: Value) -> (Placed, bool) {
        let adopted = Placed {
            nodes,
            value,
            ..placed.clone()
        };
        let is_there = self.table.update(id, placed.nodes.czxid, |placed| {
            (placed.nodes, placed.value) = (adopted.nodes.clone(), adopted.value.clone());
        });
        (adopted, is_there)
    }

    /// Finds out why a claim was lost whose node is gone: the session's node names the evictor.
    async fn loss(&self, id: ClaimId, placed: &Placed) -> Result<Loss, BackendError> {
        let session = &placed.spot.session;
        let (data, _) = found(session.client.get_data(&session.node).await)?.unwrap_or_default();
        let is_expired = placed.own_lease.ends <= self.now();
        Ok(match marks(&data).into_iter().rfind(|mark| mark.id == id) {
            Some(mark) => Loss::Evicted { by: mark.evictor() },
            None if is_expired => Loss::Expired,
            None => Loss::Missing,
        })
    }

    /// Records the loss of a claim.
    pub(super) fn lose(&self, id: ClaimId, placed: &Placed, loss: Loss) {
        let remembered = placed.spot.session.timeout();
        self.table.end(id, self.now(), Some((loss, remembered)));
    }
}

/// Whether a request was refused because a node was changed or is missing.
pub(super) fn is_changed(code: Code) -> bool {
    matches!(code, Code::NO_NODE | Code::BAD_VERSION)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_backend::{Claim, ClaimRef, ClientId, Instant, LockKey};
    use tenure_endpoint::StoreUrl;
    use tenure_servers::{ZooKeeper, needs};

    use super::*;
    use crate::config::Config;

    /// A renewal may be answered while another call reads the changed node of the claim.
    #[tokio::test]
    async fn a_claim_that_is_adopted_keeps_its_renewed_end() {
        if !needs("zookeeper", "zookeeper") {
            return;
        }
        let server = ZooKeeper::start(Duration::from_millis(500)).expect("it starts");
        let url = StoreUrl::parse(&server.url()).expect("a URL");
        let locks = Arc::new(Locks::new(Config::from_url(&url).expect("settings")));
        let at = ClaimRef {
            key: LockKey::new("k").expect("a name"),
            id: ClaimId::new(ClientId::from_random([7; 16]), 1),
        };
        let claim = Claim::of(at, Duration::from_secs(10));
        let (id, _turn) = (claim.at.id, locks.table.turn(&claim.at).await);
        let spot = locks.reserve(&claim).await.expect("a session");
        let nodes = |version| Nodes {
            paths: vec!["/k/node".to_owned()],
            czxid: 7,
            version,
            proved_at: Instant::ORIGIN,
        };
        let before = locks.put(&claim, spot, nodes(0));
        let renewed = before.own_lease.ends + Duration::from_secs(1);
        assert!(
            locks
                .table
                .update(id, 7, |placed| placed.own_lease.ends = renewed)
        );
        locks.adopt(id, &before, nodes(1), before.value.clone());
        let after = locks.table.placed(id).expect("it has a node");
        assert_eq!((after.nodes.version, after.own_lease.ends), (1, renewed));
    }
}
