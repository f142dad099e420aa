//! The nodes of a cluster, and which of them serves which slot.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use redis::Value;
use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::Host;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::backend::RedisStore;
use crate::claims::reply::{integer, list, text};
use crate::claims::slot::SLOTS;
use crate::claims::table::ClaimTable;
use crate::connection::dial::Dialer;
use crate::error::unexpected_reply;

/// Shortest time between two looks at which node serves which slot.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Locks in Redis Cluster, in the layout `redisson` or `plain`.
///
/// The rules of [`Backend`](tenure_backend::Backend) hold as in a [`RedisStore`], also while slots move and replicas
/// take over.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_redis::{Config, RedisCluster, StoreUrl};
///
/// let url = StoreUrl::parse("redis+cluster://one.example,two.example,three.example")?;
/// let store = RedisCluster::connect(Config::from_url(&url)?).await?;
/// # Ok(()) }
/// ```
pub struct RedisCluster {
    /// The settings of every connection. Each node uses a copy with its own host.
    pub(super) dialer: Dialer,
    /// The nodes that the URL names.
    pub(super) seeds: Vec<Host>,
    pub(super) claims: Arc<ClaimTable>,
    /// `None` after the store was closed.
    pub(super) nodes: Mutex<Option<Nodes>>,
    /// Notified when a slot may have been given to another node.
    pub(super) changed: watch::Sender<()>,
    /// Notified when a node's connection was replaced, or a node is gone, as after a failover: the new server may have
    /// lost claims.
    pub(super) replaced: watch::Sender<()>,
}

/// The nodes of a cluster by address and by slot.
pub(super) struct Nodes {
    pub(super) by_address: BTreeMap<String, Arc<RedisStore>>,
    by_slot: Vec<Option<Arc<RedisStore>>>,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            by_address: BTreeMap::new(),
            by_slot: vec![None; SLOTS],
        }
    }
}

impl Nodes {
    /// The node that serves a slot; `None` if no known node does.
    pub(super) fn of_slot(&self, slot: u16) -> Option<Arc<RedisStore>> {
        self.by_slot[usize::from(slot)].clone()
    }

    /// Any one slot that the node serves; `None` if it serves none.
    pub(super) fn slot_of(&self, node: &Arc<RedisStore>) -> Option<u16> {
        let is_its = |of: &Option<Arc<RedisStore>>| of.as_ref().is_some_and(|of| Arc::ptr_eq(of, node));
        self.by_slot.iter().position(is_its)?.try_into().ok()
    }
}

/// A range of slots, the node that serves it, and the replicas of that node.
type Served = (RangeInclusive<usize>, Host, Vec<Host>);

impl RedisCluster {
    /// The known nodes. Fails after the store was closed.
    pub(super) fn nodes(&self) -> Result<MappedMutexGuard<'_, Nodes>, BackendError> {
        MutexGuard::try_map(self.nodes.lock(), Option::as_mut).map_err(|_| BackendError::closed())
    }

    /// Learns which node serves which slot: from the known nodes, or if none answers, from those that the URL names.
    pub(super) async fn look(&self) -> Result<(), BackendError> {
        let known = self.nodes()?.by_address.clone();
        if !known.is_empty() {
            match ask_first(known.into_values()).await {
                Ok(served) => return self.adopt(served),
                Err(error) => tracing::debug!(%error, "no known node of the cluster answers"),
            }
        }
        let seeds = self.seeds.iter().map(|host| self.node_at(host));
        self.adopt(ask_first(seeds).await?)
    }

    /// Replaces the map of slots. Nodes that serve none are dropped.
    fn adopt(&self, served: Vec<Served>) -> Result<(), BackendError> {
        let mut fresh = Nodes::default();
        for (slots, host, _) in served {
            let entry = fresh
                .by_address
                .entry(self.dialer.to(host.clone()).config.address());
            let node = entry.or_insert_with(|| self.node_at(&host)).clone();
            fresh.by_slot[slots].fill(Some(node));
        }
        let before = std::mem::replace(&mut *self.nodes()?, fresh);
        self.changed.send_replace(());
        let after = self.nodes()?;
        let is_gone = |address| !after.by_address.contains_key(address);
        if before.by_address.keys().any(is_gone) {
            self.replaced.send_replace(());
        }
        Ok(())
    }

    /// Notes the reply `MOVED` of the node `said_by`: the node at `address` serves the slot. If `address` names no
    /// host, its host is that of `said_by`.
    pub(super) fn note_move(&self, slot: u16, address: &str, said_by: &RedisStore) {
        self.dialer.slots_may_have_moved();
        let Some((name, port)) = address.rsplit_once(':') else {
            return;
        };
        let host = port.parse().ok().and_then(|port| host(name, port, said_by));
        let Some(host) = host else { return };
        let node = self.node_at(&host);
        let Ok(mut nodes) = self.nodes() else { return };
        nodes.by_address.insert(node.address(), node.clone());
        let before = nodes.by_slot[usize::from(slot)].replace(node);
        drop(nodes);
        drop(before);
        self.changed.send_replace(());
    }

    /// The node at an address. A new one connects at its first call.
    fn node_at(&self, host: &Host) -> Arc<RedisStore> {
        let dialer = self.dialer.to(host.clone());
        let address = dialer.config.address();
        let known = self
            .nodes()
            .ok()
            .and_then(|nodes| nodes.by_address.get(&address).cloned());
        if let Some(node) = known {
            return node;
        }
        let node = RedisStore::of_node(dialer, self.claims.clone());
        let (mut of_node, replaced) = (node.link.replacements(), self.replaced.clone());
        // Passes the node's reconnects on to the watchers of the cluster. This task ends with the node's link.
        tokio::spawn(async move {
            while of_node.changed().await.is_ok() {
                replaced.send_replace(());
            }
        });
        Arc::new(node)
    }
}

/// Looks at the map of slots whenever it may be out of date, until the store is closed or dropped.
pub(super) async fn keep_looking(cluster: Weak<RedisCluster>, moves: Arc<Notify>) {
    loop {
        moves.notified().await;
        let Some(cluster) = cluster.upgrade() else { return };
        if let Err(error) = cluster.look().await {
            if error.fault() == Fault::Closed {
                return;
            }
            tracing::debug!(%error, "the nodes of the cluster could not be asked for their slots");
        }
        drop(cluster);
        sleep(LOOK_INTERVAL).await;
    }
}

/// Asks all these nodes at once which node serves which slot. Returns the first answer, or an error if none answers.
async fn ask_first(nodes: impl Iterator<Item = Arc<RedisStore>>) -> Result<Vec<Served>, BackendError> {
    let asked = nodes.map(|node| ask_for_slots(node).boxed());
    let (served, _) = select_ok(asked).await?;
    Ok(served)
}

pub(super) async fn ask_for_slots(node: Arc<RedisStore>) -> Result<Vec<Served>, BackendError> {
    let session = node.link.session().await?;
    let reply = session.wire.query(redis::cmd("CLUSTER").arg("SLOTS")).await;
    let reply = reply.map_err(|error| match std::error::Error::source(&error) {
        Some(cause) if cause.to_string().contains("cluster support disabled") => BackendError::new(
            Fault::Unsupported,
            Effect::None,
            format!(
                "Redis at {} is no node of a cluster: write `redis://` for a single server",
                node.address()
            ),
        ),
        _ => error,
    })?;
    let ranges = list(&reply).ok_or_else(unexpected_reply)?.iter();
    let served: Option<Vec<Served>> = ranges.map(|range| served(range, &node)).collect();
    served.ok_or_else(unexpected_reply)
}

/// Decodes one range of slots, with its master and the replicas that follow.
fn served(range: &Value, said_by: &RedisStore) -> Option<Served> {
    let [first, last, nodes @ ..] = list(range)? else {
        return None;
    };
    let mut hosts = nodes.iter().map(|node| match list(node)? {
        [name, port, ..] => host(text(name).unwrap_or_default(), integer(port)?, said_by),
        _ => None,
    });
    let (first, last) = (integer(first)?.try_into().ok()?, integer(last)?.try_into().ok()?);
    let master = hosts.next()??;
    (first <= last && last < SLOTS).then(|| (first..=last, master, hosts.flatten().collect()))
}

/// A node's host. If the answer has no name for it, the host of the node that answered, which may not know its own
/// name.
fn host(name: &str, port: u64, said_by: &RedisStore) -> Option<Host> {
    let port = u16::try_from(port).ok()?;
    if !["", "?"].contains(&name) {
        return Some(Host::new(name, port));
    }
    let asked = said_by.address();
    let (asked, _) = asked.rsplit_once(':')?;
    Some(Host::new(asked.trim_matches(['[', ']']), port))
}
