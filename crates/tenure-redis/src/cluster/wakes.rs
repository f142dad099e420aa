//! Wake-ups in a cluster: a claim is watched at the node of its slot, and at another after the slot has moved.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tenure_backend::{BackendError, Claim, ClientId, Invalidation, Invalidations, Wakes};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::backend::RedisStore;
use crate::claims::slot::slot_of;
use crate::cluster::nodes::RedisCluster;
use crate::error::not_subscribed;

/// While a claim cannot be watched at the node to which its slot has moved, its waiter is woken at this interval, so
/// that it polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A claim that is watched at the node of its slot.
struct Watched {
    cluster: Weak<RedisCluster>,
    changed: watch::Receiver<()>,
    claim: Arc<Claim>,
    slot: u16,
    /// The node, kept because its subscriptions end with it.
    node: Arc<RedisStore>,
    wakes: Wakes,
}

/// The evictions of a client, which it learns from one node: the messages go to all.
struct Evictions {
    cluster: Weak<RedisCluster>,
    changed: watch::Receiver<()>,
    client: ClientId,
    /// The node, kept because its subscriptions end with it.
    node: Option<(Arc<RedisStore>, Invalidations)>,
}

impl Evictions {
    /// Returns the next invalidation. Subscribes at another node when the present one serves no slot any more.
    async fn next(&mut self) -> Option<Invalidation> {
        loop {
            let cluster = self.cluster.upgrade()?;
            let serves = |node: &Arc<RedisStore>| Some(cluster.nodes().ok()?.slot_of(node).is_some());
            let is_good = match &self.node {
                Some((node, _)) => serves(node)?,
                None => false,
            };
            if !is_good {
                let other = cluster.nodes().ok()?.any();
                let subscribed = other.and_then(|node| {
                    Some((node.clone(), node.subscriptions.invalidations(self.client).ok()?))
                });
                self.node = subscribed;
            }
            drop(cluster);
            match &mut self.node {
                Some((_, evictions)) => tokio::select! {
                    next = evictions.next() => match next {
                        Some(next) => return Some(next),
                        None => self.node = None,
                    },
                    changed = self.changed.changed() => changed.ok()?,
                },
                None => self.changed.changed().await.ok()?,
            }
        }
    }
}

impl RedisCluster {
    pub(super) fn evictions(self: &Arc<Self>, client: ClientId) -> Invalidations {
        let evictions = Evictions {
            cluster: Arc::downgrade(self),
            changed: self.changed.subscribe(),
            client,
            node: None,
        };
        Invalidations::new(stream::unfold(evictions, async |mut evictions| {
            evictions.next().await.map(|next| (next, evictions))
        }))
    }

    pub(super) async fn watch_claim(self: &Arc<Self>, claim: Arc<Claim>) -> Result<Wakes, BackendError> {
        self.dialer.check_process()?;
        let slot = slot_of(&claim.at.key)?;
        let changed = self.changed.subscribe();
        let node = self.nodes()?.of_slot(slot);
        let node = node.ok_or_else(not_subscribed)?;
        let wakes = node.subscriptions.watch(&claim).await?;
        let watched = Watched {
            cluster: Arc::downgrade(self),
            changed,
            claim,
            slot,
            node,
            wakes,
        };
        Ok(Wakes::new(stream::unfold(watched, async |mut watched| {
            watched.next().await.map(|()| ((), watched))
        })))
    }
}

impl Watched {
    /// Returns at the next wake-up. Also returns after each attempt to watch the claim at another node, because
    /// wake-ups may have been missed meanwhile.
    async fn next(&mut self) -> Option<()> {
        loop {
            let node = self.cluster.upgrade()?.nodes().ok()?.of_slot(self.slot);
            if let Some(node) = node.filter(|node| !Arc::ptr_eq(node, &self.node)) {
                match node.subscriptions.watch(&self.claim).await {
                    Ok(wakes) => (self.wakes, self.node) = (wakes, node),
                    Err(_) => sleep(POLL_INTERVAL).await,
                }
                return Some(());
            }
            tokio::select! {
                wake = self.wakes.next() => return wake,
                changed = self.changed.changed() => changed.ok()?,
            }
        }
    }
}
