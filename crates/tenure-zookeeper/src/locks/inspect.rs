//! Listings: reads the contenders of locks, for people, and to evict them.

use std::num::NonZeroU32;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tenure_backend::{BackendError, HolderId, LockKey, Mode};
use tenure_contenders::{Contender as _, Inspect, Value};

use super::contenders::{Contender, Name, Standing, contenders, standing};
use super::kinds::count;
use super::names::{LEASES, LOCKS, name, parent};
use super::store::Locks;
use crate::client::{Client, Code, Stat, code};
use crate::error::found;

/// The most nodes that are read at the same time.
const MAX_READS: usize = 64;

/// The node of a contender, the mode that it has if a foreign program has created it, and the node that it waits for.
type Unread = (String, Mode, Option<String>);

/// A holder or waiter of a lock, as its nodes say.
#[derive(Debug)]
pub(super) struct Holder {
    /// The nodes: one, or one for each permit.
    pub(super) nodes: Vec<String>,
    /// The state of the first node.
    pub(super) stat: Stat,
    /// What Tenure has written to the first node; `None` for a foreign contender.
    pub(super) value: Option<Value>,
    pub(super) mode: Mode,
    /// A node that the contender waits for; `None` for a holder.
    pub(super) behind: Option<String>,
}

impl tenure_contenders::Contender for Holder {
    fn id(&self) -> HolderId {
        match &self.value {
            Some(value) => HolderId::Claim(value.id),
            None => HolderId::Foreign(name(&self.nodes[0]).into()),
        }
    }

    fn created(&self) -> i64 {
        self.stat.czxid
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
        self.locks_below(client, self.names.listing(prefix)).await
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
    /// The locks with contenders, at or below a node.
    async fn locks_below(&self, client: &Client, top: String) -> Result<Vec<LockKey>, BackendError> {
        let (mut locks, mut level) = (Vec::new(), vec![top.clone()]);
        while !level.is_empty() {
            let mut below = Vec::new();
            for part in level.chunks(MAX_READS) {
                let read = part.iter().map(async |path| {
                    let node = if path.is_empty() { "/" } else { path };
                    match found(client.get_children(node).await) {
                        // A node of another program.
                        Err(error) if code(&error) == Some(Code::NO_AUTH) && *path != top => Ok(None),
                        read => read,
                    }
                });
                for (path, read) in part.iter().zip(try_join_all(read).await?) {
                    let (children, stat) = read.unwrap_or_default();
                    let contends = |child: &String| Name::read(child).is_some();
                    if children.iter().any(contends) || stat.ephemeral_owner != 0 {
                        locks.extend(self.names.key_of(match name(path) {
                            LOCKS | LEASES if stat.ephemeral_owner == 0 => parent(path),
                            _ => path,
                        }));
                    }
                    let folders = children.iter().filter(|child| !contends(child));
                    below.extend(folders.map(|child| format!("{path}/{child}")));
                }
            }
            level = below;
        }
        Ok(locks)
    }

    /// Reads the contenders of a lock, the oldest first.
    pub(super) async fn holders_of(&self, client: &Client, lock: &str) -> Result<Vec<Holder>, BackendError> {
        let (children, stat) = found(client.get_children(lock).await)?.unwrap_or_default();
        if stat.ephemeral_owner != 0 {
            return Ok(self.holder_of_node(client, lock).await?.into_iter().collect());
        }
        let is_semaphore = |child: &String| matches!(&**child, LOCKS | LEASES);
        let mut unread = match children.iter().any(is_semaphore) {
            true => self.permits_of(client, lock).await?,
            false => Vec::new(),
        };
        let queue = contenders(lock, children);
        unread.extend(queue.iter().enumerate().filter_map(|(at, one)| {
            let mode = one.name.mode?;
            let behind = match standing(mode, &queue[..at]) {
                Standing::Granted => None,
                Standing::Waits { behind } => behind,
                _ => queue.first().map(|first| first.path.clone()),
            };
            Some((one.path.clone(), mode, behind))
        }));
        let mut all: Vec<Holder> = Vec::new();
        for part in unread.chunks(MAX_READS) {
            let read = part.iter().map(|one| self.holder(client, one.clone()));
            for one in try_join_all(read).await?.into_iter().flatten() {
                let is_same = |known: &&mut Holder| known.id() == one.id() && known.behind.is_none();
                // A further permit.
                match all.iter_mut().find(is_same).filter(|_| one.behind.is_none()) {
                    Some(known) => known.nodes.extend(one.nodes),
                    None => all.push(one),
                }
            }
        }
        Ok(all)
    }

    /// Reads the holder of a lock that is one ephemeral node: what it wrote to its own node counts, because an eviction marks
    /// that.
    async fn holder_of_node(&self, client: &Client, lock: &str) -> Result<Option<Holder>, BackendError> {
        let read = async |path: String| self.holder(client, (path, Mode::Exclusive, None)).await;
        let holder = read(lock.to_owned()).await?;
        let Some(value) = holder.as_ref().and_then(|holder| holder.value.as_ref()) else {
            return Ok(holder);
        };
        let mut own = read(self.names.own(value.id)).await?;
        if let Some(own) = &mut own {
            own.nodes.push(lock.to_owned());
        }
        Ok(own)
    }

    /// The holders and waiters of a semaphore.
    async fn permits_of(&self, client: &Client, lock: &str) -> Result<Vec<Unread>, BackendError> {
        let (permits, _) = self.children(client, &format!("{lock}/{LEASES}")).await?;
        let (queue, _) = self.children(client, &format!("{lock}/{LOCKS}")).await?;
        let (take, of) = (NonZeroU32::MIN, count(permits.len()));
        let foreign = Mode::Permits { take, of };
        let mut behind = permits.first().map(|first| first.path.clone());
        let permits = permits.into_iter().map(|one| (one.path, foreign, None));
        let mut all: Vec<Unread> = permits.collect();
        for Contender { path, .. } in queue {
            let before = behind.replace(path.clone());
            all.push((path, foreign, before));
        }
        Ok(all)
    }

    /// Reads the node of a contender. `None` if it has left.
    async fn holder(
        &self,
        client: &Client,
        (path, mode, behind): Unread,
    ) -> Result<Option<Holder>, BackendError> {
        let Some((data, stat)) = found(client.get_data(&path).await)? else {
            return Ok(None);
        };
        let value = Value::read(&data);
        Ok(Some(Holder {
            mode: value.as_ref().map_or(mode, |value| value.mode),
            stat,
            nodes: vec![path],
            value,
            behind,
        }))
    }
}
