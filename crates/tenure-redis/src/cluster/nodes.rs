//! The nodes of a cluster, and which of them serves which slot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tenure_backend::{BackendError, Fault, Profile};
use tenure_endpoint::Host;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use crate::backend::RedisStore;
use crate::claims::slot::SLOTS;
use crate::claims::table::ClaimTable;
use crate::cluster::map::{Answer, ask, moved_to, winning};
use crate::cluster::open::OpenSlots;
use crate::connection::dial::Dialer;

/// Shortest time between two looks at which node serves which slot.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Locks in Redis Cluster, in the layout `redisson` or `plain`.
///
/// The rules of [`Backend`](tenure_backend::Backend) hold as in a [`RedisStore`], also while slots move, and while replicas
/// take over. If a replica takes over a slot that is being moved, a client that has connected since can place a claim
/// while another is still held.
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
    pub(super) profile: Profile,
    /// The settings of every connection. Each node uses a copy with its own host.
    pub(super) dialer: Dialer,
    /// The nodes that the URL names.
    pub(super) seeds: Vec<Host>,
    pub(super) claims: Arc<ClaimTable>,
    /// `None` after the store was closed.
    pub(super) nodes: Mutex<Option<Nodes>>,
    pub(super) open: OpenSlots,
    /// Number of looks at the map of slots. Each one begins with another node.
    pub(super) looks: AtomicUsize,
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
    /// Addresses of the replicas, none of which serves a slot.
    replicas: BTreeSet<String>,
}

impl Default for Nodes {
    fn default() -> Self {
        Nodes {
            by_address: BTreeMap::new(),
            by_slot: vec![None; SLOTS],
            replicas: BTreeSet::new(),
        }
    }
}

impl Nodes {
    /// The node that serves a slot; `None` if no known node does.
    pub(super) fn of_slot(&self, slot: u16) -> Option<Arc<RedisStore>> {
        self.by_slot[usize::from(slot)].clone()
    }

    /// The node of the first slot that has one.
    pub(super) fn any(&self) -> Option<Arc<RedisStore>> {
        self.by_slot.iter().flatten().next().cloned()
    }

    /// Any one slot that the node serves; `None` if it serves none.
    pub(super) fn slot_of(&self, node: &Arc<RedisStore>) -> Option<u16> {
        let is_its = |of: &Option<Arc<RedisStore>>| of.as_ref().is_some_and(|of| Arc::ptr_eq(of, node));
        self.by_slot.iter().position(is_its)?.try_into().ok()
    }
}

impl RedisCluster {
    /// The known nodes. Fails after the store was closed.
    pub(super) fn nodes(&self) -> Result<MappedMutexGuard<'_, Nodes>, BackendError> {
        MutexGuard::try_map(self.nodes.lock(), Option::as_mut).map_err(|_| BackendError::closed())
    }

    /// Learns which node serves which slot: from some of the known nodes, or if none answers, from those that the URL
    /// names.
    pub(super) async fn look(&self) -> Result<(), BackendError> {
        let mut known: Vec<_> = self.nodes()?.by_address.values().cloned().collect();
        if !known.is_empty() {
            let first = self.looks.fetch_add(1, Ordering::Relaxed) % known.len();
            known.rotate_left(first);
            match ask(known).await {
                Ok(answers) => return self.adopt(&answers),
                Err(error) => tracing::debug!(%error, "no known node of the cluster answers"),
            }
        }
        let seeds = self.seeds.iter().map(|host| self.node_at(host)).collect();
        self.adopt(&ask(seeds).await?)
    }

    /// Replaces the map of slots. Nodes that serve none are dropped.
    fn adopt(&self, answers: &[Answer]) -> Result<(), BackendError> {
        let mut fresh = Nodes::default();
        for (served, slots) in winning(answers) {
            let address = self.address_of(&served.master);
            let entry = fresh.by_address.entry(address);
            let node = entry.or_insert_with(|| self.node_at(&served.master));
            for slot in slots {
                fresh.by_slot[slot] = Some(node.clone());
            }
        }
        let served = answers.iter().flat_map(|answer| &answer.served);
        let replicas = served.flat_map(|served| &served.replicas);
        fresh.replicas = replicas.map(|replica| self.address_of(replica)).collect();
        // To a node that has missed a failover, the master is still a replica.
        fresh
            .replicas
            .retain(|replica| !fresh.by_address.contains_key(replica));
        self.open.note_replicas(&fresh.replicas);
        let before = std::mem::replace(&mut *self.nodes()?, fresh);
        for open in answers.iter().flat_map(|answer| &answer.open) {
            self.note_open(open.slot);
        }
        self.changed.send_replace(());
        let after = self.nodes()?;
        let is_gone = |address| !after.by_address.contains_key(address);
        if before.by_address.keys().any(is_gone) {
            self.replaced.send_replace(());
        }
        Ok(())
    }

    /// Notes that a slot is being moved from or to the node that serves it.
    pub(super) fn note_open(&self, slot: u16) {
        let Ok(nodes) = self.nodes() else { return };
        let owner = nodes.of_slot(slot).map(|node| node.address());
        let owner = owner.unwrap_or_default();
        self.open.note(slot, &owner, &nodes.replicas, self.now());
    }

    /// Notes the reply `MOVED` of the node `said_by`: the node at `address` serves the slot. If `address` names no
    /// host, its host is that of `said_by`.
    pub(super) fn note_move(&self, slot: u16, address: &str, said_by: &RedisStore) {
        self.dialer.slots_may_have_moved();
        let Some(host) = moved_to(address, &said_by.address()) else {
            return;
        };
        let node = self.node_at(&host);
        let Ok(mut nodes) = self.nodes() else { return };
        nodes.by_address.insert(node.address(), node.clone());
        let before = nodes.by_slot[usize::from(slot)].replace(node);
        drop(nodes);
        drop(before);
        self.changed.send_replace(());
    }

    fn address_of(&self, host: &Host) -> String {
        self.dialer.to(host.clone()).config.address()
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
