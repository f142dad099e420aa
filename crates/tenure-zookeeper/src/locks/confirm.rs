//! Confirming: proves that a claim was not evicted, or finds out why it was lost.

use std::sync::Arc;

use tenure_backend::{BackendError, ClaimId, Loss};
use tenure_contenders::{Contenders as _, Value, remove_after_cooldown};

use super::placed::Placed;
use super::requests::{MAX_REPEATS, delete_all, is_changed, unsettled};
use super::sessions::marks;
use super::store::Locks;
use crate::client::{Code, Outcome, code, is_session_end};
use crate::error::refused;

impl Locks {
    /// Proves, by an answer of the leader, that a claim was not evicted. Returns the claim as it is known then; `None` if it was
    /// lost.
    pub(super) async fn confirm(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
    ) -> Result<Option<Placed>, BackendError> {
        let mut known = placed.clone();
        for _ in 0..MAX_REPEATS {
            match known.spot.session.client.multi(&known.unchanged()).await {
                Ok(Outcome::Done { .. }) => return Ok(Some(known)),
                Ok(Outcome::Refused { index, code }) => {
                    match self.own_after(id, &known, (index, code)).await? {
                        Some(own) => known = own,
                        None => return Ok(None),
                    }
                }
                Err(error) if is_session_end(&error) => {
                    self.lose(id, placed, Loss::Session);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        Err(unsettled())
    }

    /// Reads a claim after a transaction was refused that names its nodes in their order. Returns the claim as it is known then;
    /// `None` if it was lost, which is recorded. Fails if the claim is not the reason for the refusal.
    pub(super) async fn own_after(
        self: &Arc<Self>,
        id: ClaimId,
        placed: &Placed,
        (index, code): (usize, Code),
    ) -> Result<Option<Placed>, BackendError> {
        if index >= placed.nodes.len() || !is_changed(code) {
            return Err(refused(code));
        }
        if index == 0 {
            return self.own(id, placed).await;
        }
        // Another program has deleted a part of the claim. In the layout `ephemeral` another client may have that node next.
        let mut left = placed.clone();
        left.nodes.remove(index);
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
        let session = &placed.spot.session;
        let mut loss = None;
        match session.client.get_data(&placed.nodes[0]).await {
            Ok((data, stat)) if stat.czxid == placed.czxid => {
                match Value::read(&data).filter(|mark| mark.is_evicted && mark.id == id) {
                    Some(mark) => {
                        remove_after_cooldown(self, placed);
                        loss = Some(Loss::Evicted { by: mark.evictor() });
                    }
                    None => {
                        let stat = (placed.czxid, stat.version);
                        return Ok(Some(self.adopt(id, placed, placed.nodes.clone(), stat)));
                    }
                }
            }
            Ok(_) => {}
            Err(error) if code(&error) == Some(Code::NO_NODE) => {}
            Err(error) if is_session_end(&error) => loss = Some(Loss::Session),
            Err(error) => return Err(error),
        }
        if loss.is_none() {
            // A request that was not answered may have replaced the node.
            if let Some(found) = self.find(id, &placed.spot).await? {
                self.table.answered(id);
                if found.czxid != placed.czxid {
                    let stat = (found.czxid, 0);
                    return Ok(Some(self.adopt(id, placed, found.nodes, stat)));
                }
                // The other permits of a claim of which another program has deleted the first one.
                delete_all(&session.client, &found.nodes).await?;
            }
            loss = Some(self.loss(id, placed).await?);
        }
        self.lose(id, placed, loss.unwrap_or(Loss::Missing));
        Ok(None)
    }

    /// Records the nodes of a claim as they were found.
    fn adopt(
        &self,
        id: ClaimId,
        placed: &Placed,
        nodes: Vec<String>,
        (czxid, version): (i64, i32),
    ) -> Placed {
        let adopted = Placed {
            nodes,
            czxid,
            version,
            ..placed.clone()
        };
        // A claim that is being released stays as it is.
        self.table
            .update(id, placed.czxid, |placed| *placed = adopted.clone());
        adopted
    }

    /// Finds out why a claim was lost whose node is gone: the session's bell names the evictor.
    async fn loss(&self, id: ClaimId, placed: &Placed) -> Result<Loss, BackendError> {
        let session = &placed.spot.session;
        let bell = match session.client.get_data(&session.bell).await {
            Ok((bell, _)) => bell,
            Err(error) if code(&error) == Some(Code::NO_NODE) => Vec::new(),
            Err(error) => return Err(error),
        };
        let is_expired = placed.ends <= self.now();
        Ok(match marks(&bell).into_iter().rfind(|mark| mark.id == id) {
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
