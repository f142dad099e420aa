//! Requests that several verbs send: creating nodes and those above them, and finding a claim's nodes.

use tenure_backend::{BackendError, ClaimId, Effect, Fault, Instant};
use tenure_contenders::{Contenders as _, Value};

use super::contenders::{Contender, contenders};
use super::names::{LEASES, LOCKS, name, parent, uuid_of};
use super::placed::{Nodes, Spot};
use super::store::Locks;
use crate::client::{Client, Code, Done, Mode, Op, Outcome, Stat};
use crate::config::Layout;
use crate::error::{found, refused};

/// How often a request is repeated that had no effect, because other clients have changed the lock meanwhile.
pub(super) const MAX_REPEATS: u32 = 8;

/// Error for a request that was repeated too often. None of them had an effect.
pub(super) fn unsettled() -> BackendError {
    let message = "other clients of ZooKeeper change this lock all the time: try again";
    BackendError::new(Fault::Unavailable, Effect::None, message)
}

/// Error for a lock whose node, or one above it, cannot have children.
fn is_ephemeral() -> BackendError {
    let message = "the lock's node, or one above it, is an ephemeral node of ZooKeeper: another program, or the layout `ephemeral`, \
         holds a lock there";
    BackendError::new(Fault::UnknownKind, Effect::None, message)
}

/// The position of the operation that ZooKeeper has refused, and the reason. Nothing was changed.
pub(super) type Refusal = (usize, Code);

/// The contenders below a node, the oldest first, and the names of all its children.
pub(super) type Seen = (Vec<Contender>, Vec<String>);

impl Locks {
    /// The operation that creates a node of a claim.
    pub(super) fn create(&self, path: String, value: &Value, mode: Mode) -> Op {
        Op::Create(path, value.write().into(), mode, self.config.acl)
    }

    /// Carries out operations in one step, after it has created missing nodes above those that they create. Returns the new nodes.
    pub(super) async fn carry_out(
        &self,
        client: &Client,
        ops: &[Op],
    ) -> Result<Result<Nodes, Refusal>, BackendError> {
        for _ in 0..MAX_REPEATS {
            let proved_at = self.now();
            match client.multi(ops).await? {
                Outcome::Done { zxid, results } => {
                    let created = results.into_iter().filter_map(|result| match result {
                        Done::Created(path) => Some(path),
                        _ => None,
                    });
                    return Ok(Ok(Nodes {
                        paths: created.collect(),
                        czxid: zxid,
                        version: 0,
                        proved_at,
                    }));
                }
                Outcome::Refused { index, code } => match (ops.get(index), code) {
                    (Some(Op::Create(path, ..)), Code::NO_NODE) => {
                        let folder = parent(path);
                        let mode = match self.names.stays(folder) {
                            true => Mode::Persistent,
                            false => Mode::Container,
                        };
                        // The lowest one first: a user may lack the permission to create nodes further up.
                        Box::pin(self.ensure(client, folder, mode)).await?;
                    }
                    (_, Code::NO_CHILDREN_FOR_EPHEMERALS) => return Err(is_ephemeral()),
                    _ => return Ok(Err((index, code))),
                },
            }
        }
        Err(unsettled())
    }

    /// Creates a node without data, and missing ones above it, unless it exists.
    pub(super) async fn ensure(&self, client: &Client, path: &str, mode: Mode) -> Result<(), BackendError> {
        let create = Op::Create(path.to_owned(), Vec::new(), mode, self.config.acl);
        match self.carry_out(client, &[create]).await? {
            Ok(_) | Err((_, Code::NODE_EXISTS)) => Ok(()),
            Err((_, code)) => Err(refused(code)),
        }
    }

    /// Records that a request to place a claim has failed. If its effect is unknown, the claim is withdrawn after the time of its
    /// session, unless it ends before.
    pub(super) fn not_placed(&self, id: ClaimId, spot: &Spot, error: &BackendError) {
        if error.effect() == Effect::Unknown {
            self.table.unanswered(id, self.now() + spot.session.timeout());
        }
        self.table.unplace(id);
    }

    /// Reads the contenders below a node. There are none if the node is missing.
    pub(super) async fn children(&self, client: &Client, folder: &str) -> Result<Seen, BackendError> {
        let (children, _) = found(client.get_children(folder).await)?.unwrap_or_default();
        Ok((contenders(folder, children.clone()), children))
    }

    /// Finds the nodes of a claim, after a request of its session was not answered, with what the first of them says. An earlier
    /// request cannot create a node after that: the leader has put it before the `sync`, or refuses it because the session has
    /// moved.
    pub(super) async fn find(
        &self,
        id: ClaimId,
        spot: &Spot,
    ) -> Result<Option<(Nodes, Vec<u8>, Stat)>, BackendError> {
        let client = &spot.session.client;
        client.sync(&spot.folder).await?;
        let mut folders = vec![spot.folder.clone()];
        if name(&spot.folder) == LOCKS {
            folders.insert(0, format!("{}/{LEASES}", parent(&spot.folder)));
        }
        for folder in &folders {
            let paths: Vec<String> = match self.config.layout {
                Layout::Ephemeral => vec![self.names.own(id), spot.folder.clone()],
                _ => {
                    let is_own = |one: &Contender| one.name.uuid == Some(uuid_of(id));
                    let all = self.children(client, folder).await?.0.into_iter();
                    all.filter(is_own).map(|one| one.path).collect()
                }
            };
            let Some(first) = paths.first() else { continue };
            if let Some((data, stat)) = found(client.get_data(first).await)?
                && stat.ephemeral_owner == spot.session.id
            {
                let nodes = Nodes {
                    paths,
                    czxid: stat.czxid,
                    // As this client wrote it. A later one may be the mark of an eviction.
                    version: 0,
                    proved_at: Instant::ORIGIN,
                };
                return Ok(Some((nodes, data, stat)));
            }
        }
        Ok(None)
    }

    /// Deletes the nodes of a claim in one step. Returns false if the first one is missing: the claim has left.
    pub(super) async fn delete_all(&self, client: &Client, paths: &[String]) -> Result<bool, BackendError> {
        let mut deletes: Vec<Op> = paths.iter().map(|path| Op::Delete(path.clone(), None)).collect();
        while !deletes.is_empty() {
            match self.carry_out(client, &deletes).await? {
                Ok(_) => return Ok(true),
                Err((0, Code::NO_NODE)) => return Ok(false),
                // A permit that was deleted by hand.
                Err((index, Code::NO_NODE)) => _ = deletes.remove(index),
                Err((_, code)) => return Err(refused(code)),
            }
        }
        Ok(false)
    }
}
