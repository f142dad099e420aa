//! What a lock is used as, besides what its contenders' names say: a semaphore, or one ephemeral node.

use std::num::NonZeroU32;
use std::sync::Arc;

use tenure_backend::{BackendError, Claim, Effect, Fault, Kind, LockKey};
use tenure_contenders::Value;

use super::contenders::{Contender, Standing};
use super::names::{LEASES, LOCKS, Names};
use super::placed::Placed;
use super::store::Locks;
use crate::client::{Client, Mode, Op};
use crate::config::Layout;
use crate::error::found;

/// The most permits that a claim takes: all are taken in one request.
const MAX_TAKE: u32 = 1_000;

impl Locks {
    /// Returns the state of a claim of the layout `ephemeral` that has no node.
    pub(super) async fn look_at_node(&self, client: &Client, path: &str) -> Result<Standing, BackendError> {
        match client.exists(path).await? {
            None => Ok(Standing::Granted),
            Some(found) if found.ephemeral_owner != 0 => Ok(Standing::Waits {
                behind: Some(path.to_owned()),
            }),
            Some(_) => {
                let message = "the lock's node in ZooKeeper is not ephemeral: it belongs to a lock in another layout, or to another program";
                Err(BackendError::new(Fault::UnknownKind, Effect::None, message))
            }
        }
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
                Some(first) => self.kind_at(client, &first.path).await,
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// The kind of a semaphore, if a lock is used as one. What foreign contenders do not say is as asked.
    async fn semaphore(
        &self,
        client: &Client,
        lock: &str,
        asked: Kind,
    ) -> Result<Option<Kind>, BackendError> {
        for folder in [LEASES, LOCKS] {
            let (contenders, _) = self.children(client, &format!("{lock}/{folder}")).await?;
            let Some(first) = contenders.first() else { continue };
            let foreign = match asked {
                Kind::Semaphore { .. } => asked,
                _ => Kind::Semaphore {
                    of: count(contenders.len()),
                },
            };
            let kind = self.kind_at(client, &first.path).await?;
            return Ok(Some(kind.unwrap_or(foreign)));
        }
        Ok(None)
    }

    /// The kind that Tenure has written to a node; `None` for a foreign node, and for one that is gone.
    async fn kind_at(&self, client: &Client, path: &str) -> Result<Option<Kind>, BackendError> {
        let read = found(client.get_data(path).await)?;
        let value = read.and_then(|(data, _)| Value::read(&data));
        Ok(value.map(|value| value.mode.kind()))
    }

    /// Whether a semaphore has permits left for the claim that is at the head of its queue.
    pub(super) async fn has_room(
        &self,
        client: &Client,
        key: &LockKey,
        take: NonZeroU32,
        of: NonZeroU32,
    ) -> Result<bool, BackendError> {
        let (_, taken) = self.children(client, &self.names.permits(key)).await?;
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
        let path = format!("{}/{}", self.names.permits(&claim.at.key), Names::lease(id));
        let permit = self.create(path, &placed.value, Mode::EphemeralSequential);
        let permits: Vec<Op> = (0..take.get()).map(|_| permit.clone()).collect();
        let taken = self.replace_nodes(id, placed, placed.value.clone(), &permits);
        let taken = taken.await;
        if let Err(error) = taken.as_ref()
            && error.effect() == Effect::Unknown
        {
            self.not_placed(id, &placed.spot, error);
        }
        taken
    }
}

/// A number of permits; at least one.
pub(super) fn count(permits: usize) -> NonZeroU32 {
    let count = u32::try_from(permits).unwrap_or(u32::MAX);
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
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
