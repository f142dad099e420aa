//! What a lock is used as, besides what its contenders' names say: a semaphore, or one ephemeral node.

use std::num::NonZeroU32;
use std::sync::Arc;

use tenure_backend::{BackendError, Claim, Effect, Fault, Kind, LockKey};
use tenure_contenders::{Contenders as _, Value, placed_but};

use super::contenders::{Contender, Standing};
use super::names::{LEASES, LOCKS, Names, parent};
use super::placed::{Placed, Spot};
use super::requests::{Found, MAX_REPEATS, delete_all, is_ephemeral, unsettled};
use super::store::Locks;
use crate::client::{Client, Code, Done, Mode, Op, Outcome, code};
use crate::config::Layout;
use crate::error::refused;

/// The most permits that a claim takes: all are taken in one request.
const MAX_TAKE: u32 = 1_000;

impl Locks {
    /// Returns the state of a claim of the layout `ephemeral`. `None` if its node is missing.
    pub(super) async fn look_at_node(
        &self,
        client: &Client,
        path: &str,
        own: Option<&Placed>,
    ) -> Result<Option<Standing>, BackendError> {
        let found = client.exists(path).await?;
        let behind = path.to_owned();
        Ok(match (found, own) {
            (None, None) => Some(Standing::Granted),
            (Some(found), Some(own)) if found.czxid == own.czxid => Some(Standing::Granted),
            (_, Some(_)) => None,
            (Some(found), None) if found.ephemeral_owner != 0 => {
                Some(Standing::Waits { behind: Some(behind) })
            }
            (Some(_), None) => {
                let message = "the lock's node in ZooKeeper is not ephemeral: it belongs to a lock in another layout, or to another program";
                return Err(BackendError::new(Fault::UnknownKind, Effect::None, message));
            }
        })
    }

    /// Creates the lock's node in the layout `ephemeral`, and one of the claim's own. `None` if another claim has the lock.
    pub(super) async fn place_node(&self, claim: &Claim, spot: Spot) -> Result<Option<Placed>, BackendError> {
        let nodes = [self.names.own(claim.at.id), spot.folder.clone()];
        let client = &spot.session.client;
        let data = self.value(claim).write();
        let create = |node: &String| {
            Op::Create(
                node.clone(),
                data.clone().into_bytes(),
                Mode::Ephemeral,
                self.config.acl,
            )
        };
        for _ in 0..MAX_REPEATS {
            let sent = self.now();
            match client.multi(&nodes.each_ref().map(create)).await {
                Ok(Outcome::Done { zxid, .. }) => {
                    let found = Found {
                        nodes: nodes.into(),
                        czxid: zxid,
                    };
                    return Ok(Some(self.put(claim, spot, found, sent)));
                }
                Ok(Outcome::Refused { index, code }) => match code {
                    Code::NODE_EXISTS => return Ok(None),
                    Code::NO_NODE => self.create_folders(client, parent(&nodes[index])).await?,
                    Code::NO_CHILDREN_FOR_EPHEMERALS => return Err(is_ephemeral()),
                    code => return Err(refused(code)),
                },
                Err(error) => {
                    self.not_placed(claim.at.id, &spot, &error);
                    return Err(error);
                }
            }
        }
        Err(unsettled())
    }

    /// The kind of a lock, as far as its contenders' names do not say it.
    pub(super) async fn other_kind(
        &self,
        claim: &Claim,
        client: &Client,
        earlier: &[Contender],
        names: &[String],
    ) -> Result<Option<Kind>, BackendError> {
        let (key, asked) = (&claim.at.key, claim.mode.kind());
        match (self.config.layout, asked) {
            (Layout::Curator, Kind::Semaphore { .. }) => {
                let (contenders, _) = self.children(client, &self.names.lock(key)).await?;
                match contenders.iter().find_map(|one| one.name.mode) {
                    Some(mode) => Ok(Some(mode.kind())),
                    None => self.semaphore(client, &self.names.lock(key), asked).await,
                }
            }
            (Layout::Curator, _) if names.iter().any(|name| matches!(&**name, LOCKS | LEASES)) => {
                self.semaphore(client, &self.names.lock(key), asked).await
            }
            // The names of mutexes and write locks are alike.
            (Layout::Kazoo, _) => match earlier.first() {
                Some(first) => {
                    let value = self.value_at(client, &first.path).await?;
                    Ok(value.map(|value| value.mode.kind()))
                }
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The kind of a semaphore, if a lock is used as one. What foreign contenders do not say is as asked.
    pub(super) async fn semaphore(
        &self,
        client: &Client,
        lock: &str,
        asked: Kind,
    ) -> Result<Option<Kind>, BackendError> {
        for folder in [LEASES, LOCKS] {
            let (contenders, _) = self.children(client, &format!("{lock}/{folder}")).await?;
            let Some(first) = contenders.first() else { continue };
            let value = self.value_at(client, &first.path).await?;
            let count = u32::try_from(contenders.len()).ok().and_then(NonZeroU32::new);
            let foreign = Kind::Semaphore {
                of: count.unwrap_or(NonZeroU32::MIN),
            };
            return Ok(Some(match (value, asked) {
                (Some(value), _) => value.mode.kind(),
                (None, Kind::Semaphore { .. }) => asked,
                (None, _) => foreign,
            }));
        }
        Ok(None)
    }

    /// What Tenure has written to a node; `None` for a foreign node, and for one that is gone.
    pub(super) async fn value_at(&self, client: &Client, path: &str) -> Result<Option<Value>, BackendError> {
        match client.get_data(path).await {
            Ok((data, _)) => Ok(Value::read(&data)),
            Err(error) if code(&error) == Some(Code::NO_NODE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a semaphore has permits left for the claim that is at the head of its queue.
    pub(super) async fn has_room(
        &self,
        client: &Client,
        key: &LockKey,
        take: NonZeroU32,
        of: NonZeroU32,
    ) -> Result<bool, BackendError> {
        let permits = format!("{}/{LEASES}", self.names.lock(key));
        let (_, taken) = self.children(client, &permits).await?;
        let taken = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        Ok(take.get() <= of.get().saturating_sub(taken))
    }

    /// Takes the permits of the claim at the head of the queue, and leaves the queue in the same step. Returns the claim with its
    /// permits; `None` if the claim was lost.
    pub(super) async fn take(
        self: &Arc<Self>,
        claim: &Claim,
        placed: &Placed,
        take: NonZeroU32,
    ) -> Result<Option<Placed>, BackendError> {
        let id = claim.at.id;
        let client = &placed.spot.session.client;
        let folder = format!("{}/{LEASES}", self.names.lock(&claim.at.key));
        let path = format!("{folder}/{}", Names::lease(id));
        let create = || {
            Op::Create(
                path.clone(),
                placed.value.write().into(),
                Mode::EphemeralSequential,
                self.config.acl,
            )
        };
        let mut waiting = placed.clone();
        for _ in 0..MAX_REPEATS {
            let mut ops = waiting.deletes();
            ops.extend((0..take.get()).map(|_| create()));
            let sent = self.now();
            match client.multi(&ops).await {
                Ok(Outcome::Done { zxid, results }) => {
                    let created = results.into_iter().filter_map(|result| match result {
                        Done::Created(path) => Some(path),
                        _ => None,
                    });
                    let taken = Placed {
                        nodes: created.collect(),
                        czxid: zxid,
                        version: 0,
                        proved_at: sent,
                        ..waiting
                    };
                    if self.table.place(id, taken.clone()) {
                        return Ok(Some(taken));
                    }
                    // If this fails, the withdrawal of the claim finds the nodes.
                    let _ = delete_all(client, &taken.nodes).await;
                    return Ok(None);
                }
                Ok(Outcome::Refused { index: 0, .. }) => {
                    match self.own(id, &waiting).await.map_err(placed_but)? {
                        Some(own) => waiting = own,
                        None => return Ok(None),
                    }
                }
                Ok(Outcome::Refused {
                    code: Code::NO_NODE, ..
                }) => {
                    self.create_folders(client, &folder).await.map_err(placed_but)?;
                }
                Ok(Outcome::Refused { code, .. }) => return Err(placed_but(refused(code))),
                Err(error) => {
                    if error.effect() == Effect::Unknown {
                        self.not_placed(id, &placed.spot, &error);
                    }
                    return Err(placed_but(error));
                }
            }
        }
        Err(placed_but(unsettled()))
    }
}

/// Refuses a claim for more permits than one request can take.
pub(super) fn check_take(mode: tenure_backend::Mode) -> Result<(), BackendError> {
    match mode {
        tenure_backend::Mode::Permits { take, .. } if take.get() > MAX_TAKE => {
            let message = format!("a claim takes at most {MAX_TAKE} permits in ZooKeeper, not {take}");
            Err(BackendError::new(Fault::Limit, Effect::None, message))
        }
        _ => Ok(()),
    }
}
