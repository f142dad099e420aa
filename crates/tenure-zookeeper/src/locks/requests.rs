//! Requests that several verbs send: creating nodes and those above them, and finding a claim's nodes.

use tenure_backend::{BackendError, ClaimId, Effect, Fault, Instant};
use tenure_contenders::Contenders as _;

use super::contenders::{Contender, contenders};
use super::names::{LEASES, LOCKS, name, parent, uuid_of};
use super::placed::{Placed, Spot};
use super::store::Locks;
use crate::client::{Client, Code, Created, Mode, Op, Outcome, code};
use crate::config::Layout;
use crate::error::refused;

/// How often a request is repeated that had no effect, because other clients have changed the lock meanwhile.
pub(super) const MAX_REPEATS: u32 = 8;

/// Error for a request that was repeated too often. None of them had an effect.
pub(super) fn unsettled() -> BackendError {
    let message = "other clients of ZooKeeper change this lock all the time: try again";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a lock whose node, or one above it, cannot have children.
pub(super) fn is_ephemeral() -> BackendError {
    let message = "the lock's node, or one above it, is an ephemeral node of ZooKeeper: another program, or the layout `ephemeral`, \
         holds a lock there";
    BackendError::new(Fault::UnknownKind, Effect::None, message)
}

/// The nodes of a claim, as they were found.
pub(super) struct Found {
    pub(super) nodes: Vec<String>,
    pub(super) czxid: i64,
}

/// The contenders below a node, the oldest first, and the names of all its children.
pub(super) type Seen = (Vec<Contender>, Vec<String>);

impl Locks {
    /// Creates a node, and missing ones above it. Returns when the request was sent that created it.
    pub(super) async fn create(
        &self,
        client: &Client,
        path: &str,
        data: &[u8],
        mode: Mode,
    ) -> Result<(Created, Instant), BackendError> {
        for _ in 0..MAX_REPEATS {
            let sent = self.now();
            let created = client.create(path, data, mode, self.config.acl).await;
            let refused = created.as_ref().err().and_then(code);
            match refused {
                Some(Code::NO_NODE) => self.create_folders(client, parent(path)).await?,
                Some(Code::NO_CHILDREN_FOR_EPHEMERALS) => return Err(is_ephemeral()),
                _ => return created.map(|created| (created, sent)),
            }
        }
        Err(unsettled())
    }

    /// Records that a request to place a claim has failed. If its effect is unknown, the claim is withdrawn after the time of its
    /// session, unless it ends before.
    pub(super) fn not_placed(&self, id: ClaimId, spot: &Spot, error: &BackendError) {
        if error.effect() == Effect::Unknown {
            self.table.unanswered(id, self.now() + spot.session.timeout());
        }
        self.table.unplace(id);
    }

    /// Creates the node above others, and those above it that are missing.
    pub(super) async fn create_folders(&self, client: &Client, path: &str) -> Result<(), BackendError> {
        let mut missing = vec![path];
        // Begins with the lowest one: a user may lack the permission to create nodes further up.
        while let Some(path) = missing.last().filter(|path| !path.is_empty())
            && !self.create_folder(client, path).await?
        {
            missing.push(parent(path));
        }
        missing.pop();
        while let Some(path) = missing.pop() {
            self.create_folder(client, path).await?;
        }
        Ok(())
    }

    /// Creates a node above others. Returns false if its parent is missing.
    async fn create_folder(&self, client: &Client, path: &str) -> Result<bool, BackendError> {
        let mode = match self.names.stays(path) {
            true => Mode::Persistent,
            false => Mode::Container,
        };
        let created = client.create(path, b"", mode, self.config.acl).await;
        let refused = created.as_ref().err().and_then(code);
        match refused {
            Some(Code::NO_NODE) => Ok(false),
            Some(Code::NODE_EXISTS) => Ok(true),
            Some(Code::NO_CHILDREN_FOR_EPHEMERALS) => Err(is_ephemeral()),
            _ => created.map(|_| true),
        }
    }

    /// Reads the contenders below a node. There are none if the node is missing.
    pub(super) async fn children(&self, client: &Client, folder: &str) -> Result<Seen, BackendError> {
        match client.get_children(folder).await {
            Ok((children, _)) => Ok((contenders(folder, children.clone()), children)),
            Err(error) if code(&error) == Some(Code::NO_NODE) => Ok((Vec::new(), Vec::new())),
            Err(error) => Err(error),
        }
    }

    /// Finds the nodes of a claim, after a request of its session was not answered. An earlier request cannot create a node
    /// after that: the leader has put it before the `sync`, or refuses it because the session has moved.
    pub(super) async fn find(&self, id: ClaimId, spot: &Spot) -> Result<Option<Found>, BackendError> {
        let client = &spot.session.client;
        client.sync(&spot.folder).await?;
        let mut folders = vec![spot.folder.clone()];
        if name(&spot.folder) == LOCKS {
            folders.insert(0, format!("{}/{LEASES}", parent(&spot.folder)));
        }
        for folder in &folders {
            let nodes = match self.config.layout {
                Layout::Ephemeral => vec![self.names.own(id), spot.folder.clone()],
                _ => self.of_claim(client, folder, id).await?,
            };
            let Some(first) = nodes.first() else { continue };
            match client.get_data(first).await {
                Ok((_, stat)) if stat.ephemeral_owner == spot.session.id => {
                    let czxid = stat.czxid;
                    return Ok(Some(Found { nodes, czxid }));
                }
                Ok(_) => {}
                Err(error) if code(&error) == Some(Code::NO_NODE) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The nodes below a node whose names say that they belong to a claim.
    pub(super) async fn of_claim(
        &self,
        client: &Client,
        folder: &str,
        id: ClaimId,
    ) -> Result<Vec<String>, BackendError> {
        let (contenders, _) = self.children(client, folder).await?;
        let own = contenders
            .into_iter()
            .filter(|one| one.name.uuid == Some(uuid_of(id)));
        Ok(own.map(|one| one.path).collect())
    }
}

/// Whether a request was refused because a node was changed or is missing.
pub(super) fn is_changed(code: Code) -> bool {
    matches!(code, Code::NO_NODE | Code::BAD_VERSION)
}

/// Deletes the nodes of a claim in one step, if it was not evicted. If ZooKeeper refuses that, returns the position of the node and
/// the reason.
pub(super) async fn delete_unchanged(placed: &Placed) -> Result<Option<(usize, Code)>, BackendError> {
    match placed.spot.session.client.multi(&placed.deletes()).await? {
        Outcome::Done { .. } => Ok(None),
        Outcome::Refused { index, code } => Ok(Some((index, code))),
    }
}

/// Deletes the nodes of a claim in one step. Returns false if the first one is missing: the claim has left.
pub(super) async fn delete_all(client: &Client, nodes: &[String]) -> Result<bool, BackendError> {
    let mut deletes: Vec<Op> = nodes.iter().map(|node| Op::Delete(node.clone(), None)).collect();
    while !deletes.is_empty() {
        match client.multi(&deletes).await? {
            Outcome::Done { .. } => return Ok(true),
            Outcome::Refused {
                index: 0,
                code: Code::NO_NODE,
            } => return Ok(false),
            // A permit that was deleted by hand.
            Outcome::Refused {
                index,
                code: Code::NO_NODE,
            } => _ = deletes.remove(index),
            Outcome::Refused { code, .. } => return Err(refused(code)),
        }
    }
    Ok(false)
}
