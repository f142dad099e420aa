//! Listings: reads the contenders of locks, for people, and to evict them.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tenure_backend::{BackendError, HolderId, LockKey, Mode};
use tenure_contenders::{Inspect, Value};

use super::contenders::{Contender, Name, Standing, contenders, standing};
use super::names::{LEASES, LOCKS, name, parent};
use super::store::Locks;
use crate::client::{Client, Code, code};

/// The most nodes that are read at the same time.
const MAX_READS: usize = 64;

/// A holder or waiter of a lock, as its nodes say.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) id: HolderId,
    /// The nodes: one, or one for each permit.
    pub(super) nodes: Vec<String>,
    pub(super) czxid: i64,
    /// Version of the first node.
    pub(super) version: i32,
    /// The session that the nodes belong to.
    pub(super) session: i64,
    /// What Tenure has written to the first node; `None` for a foreign contender.
    pub(super) value: Option<Value>,
    pub(super) mode: Mode,
    /// A node that the contender waits for; `None` for a holder.
    pub(super) behind: Option<String>,
}

impl tenure_contenders::Contender for Holder {
    fn id(&self) -> HolderId {
        self.id.clone()
    }

    fn created(&self) -> i64 {
        self.czxid
    }

    fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn waits(all: &[Self], at: usize) -> bool {
        all[at].behind.is_some()
    }
}

impl Inspect for Locks {
    async fn locks(self: &Arc<Self>, prefix: &str) -> Result<Vec<LockKey>, BackendError> {
        let client = &self.any_session().await?.client;
        client.sync("/").await?;
        let paths = self.locks_below(client, self.names.listing(prefix)).await?;
        Ok(paths.iter().filter_map(|path| self.names.key_of(path)).collect())
    }

    async fn contenders_of(self: &Arc<Self>, locks: &[LockKey]) -> Result<Vec<Vec<Holder>>, BackendError> {
        let client = &self.any_session().await?.client;
        client.sync("/").await?;
        let mut all = Vec::new();
        for lock in locks {
            all.push(self.holders_of(client, &self.names.lock(lock)).await?);
        }
        Ok(all)
    }
}

impl Locks {
    /// The paths of the locks with contenders, at or below a node.
    async fn locks_below(&self, client: &Client, top: String) -> Result<BTreeSet<String>, BackendError> {
        let mut locks = BTreeSet::new();
        let mut unread = vec![top.clone()];
        while !unread.is_empty() {
            let rest = unread.split_off(unread.len().min(MAX_READS));
            let read = unread.iter().map(async |path| {
                let node = if path.is_empty() { "/" } else { path };
                match client.get_children(node).await {
                    Ok((children, stat)) => Ok((children, stat.ephemeral_owner != 0)),
                    Err(error) => match code(&error) {
                        Some(Code::NO_NODE) => Ok((Vec::new(), false)),
                        // A node of another program.
                        Some(Code::NO_AUTH) if *path != top => Ok((Vec::new(), false)),
                        _ => Err(error),
                    },
                }
            });
            let read: Vec<(Vec<String>, bool)> = try_join_all(read).await?;
            let mut found = rest;
            for (path, (children, is_ephemeral)) in unread.iter().zip(read) {
                let contends = children.iter().any(|child| Name::read(child).is_some());
                match name(path) {
                    LOCKS | LEASES if contends => _ = locks.insert(parent(path).to_owned()),
                    _ if contends || is_ephemeral => _ = locks.insert(path.clone()),
                    _ => {}
                }
                let is_folder = |child: &String| Name::read(child).is_none();
                found.extend(
                    children
                        .into_iter()
                        .filter(is_folder)
                        .map(|child| format!("{path}/{child}")),
                );
            }
            unread = found;
        }
        Ok(locks)
    }

    /// Reads the contenders of a lock, the oldest first.
    pub(super) async fn holders_of(&self, client: &Client, lock: &str) -> Result<Vec<Holder>, BackendError> {
        let (children, is_ephemeral) = match client.get_children(lock).await {
            Ok((children, stat)) => (children, stat.ephemeral_owner != 0),
            Err(error) if code(&error) == Some(Code::NO_NODE) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let is_semaphore = |child: &String| matches!(&**child, LOCKS | LEASES);
        if is_ephemeral {
            return Ok(self.holder_of_node(client, lock).await?.into_iter().collect());
        }
        let mut found = match children.iter().any(is_semaphore) {
            true => self.permits_of(client, lock).await?,
            false => Vec::new(),
        };
        let queue = contenders(lock, children);
        let reading: Vec<_> = (0..queue.len())
            .filter_map(|at| {
                let mode = queue[at].name.mode?;
                let behind = match standing(mode, &queue[..at]) {
                    Standing::Granted => None,
                    Standing::Waits { behind } => behind,
                    _ => queue.first().map(|first| first.path.clone()),
                };
                Some((queue[at].path.clone(), mode, behind))
            })
            .collect();
        for part in reading.chunks(MAX_READS) {
            let read = part
                .iter()
                .map(|(path, mode, behind)| self.holder(client, path.clone(), *mode, behind.clone()));
            found.extend(try_join_all(read).await?.into_iter().flatten());
        }
        Ok(found)
    }

    /// Reads the holder of a lock that is one ephemeral node: what it wrote to its own node counts, because an eviction marks
    /// that.
    async fn holder_of_node(&self, client: &Client, lock: &str) -> Result<Option<Holder>, BackendError> {
        let holder = self
            .holder(client, lock.to_owned(), Mode::Exclusive, None)
            .await?;
        let Some(Holder {
            id: HolderId::Claim(id),
            ..
        }) = holder
        else {
            return Ok(holder);
        };
        let own = self
            .holder(client, self.names.own(id), Mode::Exclusive, None)
            .await?;
        Ok(own.map(|own| Holder {
            nodes: vec![self.names.own(id), lock.to_owned()],
            ..own
        }))
    }

    /// Reads the holders and waiters of a semaphore.
    async fn permits_of(&self, client: &Client, lock: &str) -> Result<Vec<Holder>, BackendError> {
        let (permits, _) = self.children(client, &format!("{lock}/{LEASES}")).await?;
        let (queue, _) = self.children(client, &format!("{lock}/{LOCKS}")).await?;
        let of = u32::try_from(permits.len().max(1)).unwrap_or(u32::MAX);
        let foreign = permits_mode(1, of);
        let mut found: Vec<Holder> = Vec::new();
        let first_permit = permits.first().map(|first| first.path.clone());
        let behind = |at: usize| match at {
            0 => first_permit.clone(),
            at => Some(queue[at - 1].path.clone()),
        };
        let permits = permits.iter().map(|permit| (permit, None));
        let waiters = queue
            .iter()
            .enumerate()
            .map(|(at, one): (_, &Contender)| (one, behind(at)));
        for (one, behind) in permits.chain(waiters) {
            let holder = self.holder(client, one.path.clone(), foreign, behind).await?;
            let Some(holder) = holder else { continue };
            let same = |known: &&mut Holder| known.id == holder.id && known.behind.is_none();
            match found.iter_mut().find(same).filter(|_| holder.behind.is_none()) {
                Some(known) => known.nodes.extend(holder.nodes),
                None => found.push(holder),
            }
        }
        Ok(found)
    }

    /// Reads the node of a contender. `None` if it has left.
    async fn holder(
        &self,
        client: &Client,
        path: String,
        mode: Mode,
        behind: Option<String>,
    ) -> Result<Option<Holder>, BackendError> {
        let (data, stat) = match client.get_data(&path).await {
            Ok(read) => read,
            Err(error) if code(&error) == Some(Code::NO_NODE) => return Ok(None),
            Err(error) => return Err(error),
        };
        let value = Value::read(&data);
        Ok(Some(Holder {
            id: match &value {
                Some(value) => HolderId::Claim(value.id),
                None => HolderId::Foreign(name(&path).into()),
            },
            mode: value.as_ref().map_or(mode, |value| value.mode),
            czxid: stat.czxid,
            version: stat.version,
            session: stat.ephemeral_owner,
            nodes: vec![path],
            value,
            behind,
        }))
    }
}

fn permits_mode(take: u32, of: u32) -> Mode {
    let number = |n: u32| n.try_into().unwrap_or(std::num::NonZeroU32::MIN);
    Mode::Permits {
        take: number(take),
        of: number(of),
    }
}
