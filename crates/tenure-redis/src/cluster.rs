//! Redis Cluster as one store: a [`RedisStore`](crate::RedisStore) for each node, and a map from slots to nodes.
//!
//! All keys of a lock are in one slot. A call goes to the node of that slot, and follows the slot when it moves
//! ([`route`]). The nodes share one table of claims, because claims move with their slots. `map` asks the nodes for the
//! map, and `nodes` keeps it; `open` knows the slots that are being moved. `wakes` moves subscriptions, and `listing`
//! joins the listings of all nodes.

mod examine;
mod listing;
mod map;
mod nodes;
mod open;
mod route;
mod wakes;

use std::collections::BTreeMap;
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Finding, Instant,
    Invalidations, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
    Wakes,
};
use tokio::sync::{Notify, watch};

use crate::backend::RedisStore;
use crate::claims::slot::{slot, slot_of};
use crate::claims::table::ClaimTable;
use crate::config::Config;
use crate::connection::connect_error::of_first_attempt;
use crate::connection::dial::Dialer;
use crate::connection::link::all_at;
use crate::error::{self, invalid, refused};
use crate::layout::Layout;
use crate::profile::LIMITS;
use crate::release::release_each;
use crate::renew::time_limit;
use crate::topology::Topology;
pub use nodes::RedisCluster;
use nodes::{Nodes, keep_looking};
use open::OpenSlots;
use route::redirect;

impl RedisCluster {
    /// Connects to the first node of the URL that answers, and learns the others from it.
    ///
    /// # Cancel safety
    /// If the future is dropped, attempts in progress end in the background, and all connections are closed.
    ///
    /// # Errors
    /// As [`RedisStore::connect`](crate::RedisStore::connect); `Unsupported` if the server is no node of a cluster, and
    /// for the layout `spring`.
    pub async fn connect(config: Config) -> Result<Arc<Self>, BackendError> {
        let Topology::Cluster(node, others) = &config.topology else {
            return Err(invalid(
                "this is no URL of a cluster: write `redis+cluster://HOST,HOST`",
            ));
        };
        let seeds = [slice::from_ref(node), others].concat();
        if matches!(config.layout, Layout::Spring { .. }) {
            return Err(BackendError::unsupported(
                "the layout `spring` is not served on a cluster, where its channels are in other slots than its keys: use the \
                 layout `redisson` or `plain`, or a single server",
            ));
        }
        let moves = Arc::new(Notify::new());
        let profile = config.profile();
        let dialer = Dialer::new(config)?.for_cluster(moves.clone());
        let cluster = Arc::new(RedisCluster {
            profile,
            dialer,
            seeds,
            claims: Arc::new(ClaimTable::of_cluster()),
            nodes: Mutex::new(Some(Nodes::default())),
            open: OpenSlots::default(),
            looks: AtomicUsize::new(0),
            changed: watch::Sender::new(()),
            replaced: watch::Sender::new(()),
        });
        cluster.look().await.map_err(of_first_attempt)?;
        tokio::spawn(keep_looking(Arc::downgrade(&cluster), moves));
        Ok(cluster)
    }

    fn now(&self) -> Instant {
        self.dialer.config.clock.now()
    }

    async fn acquire_claim(
        &self,
        claim: &Arc<Claim>,
        not_after: Instant,
    ) -> Result<AcquireReply, BackendError> {
        let acquire = |node: Arc<RedisStore>| async move {
            self.check_placement(claim, &node)?;
            node.acquire_claim(claim, not_after).await
        };
        self.call_routed(&claim.at.key, not_after, acquire).await
    }

    /// Fails if a node must not place a claim, because a node that has failed was moving the slot; see `open`.
    fn check_placement(&self, claim: &Claim, node: &RedisStore) -> Result<(), BackendError> {
        let (slot, node) = (slot_of(&claim.at.key)?, node.address());
        match self.open.closed_for(slot, &node, claim.lease, self.now()) {
            None => Ok(()),
            Some(rest) => Err(error::failed_while_open(slot, &node, rest)),
        }
    }

    /// Renews the claims of each slot in calls of their own, which run concurrently.
    async fn renew_all(&self, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return refused(batch.len(), &error, RenewReply::Unknown);
        }
        // Claims on keys whose braces leave them without a slot form a group of their own, which is refused.
        let mut by_slot: BTreeMap<Option<u16>, Vec<usize>> = BTreeMap::new();
        for (at, renewal) in batch.iter().enumerate() {
            let slot = slot_of(&renewal.claim.key).ok();
            by_slot.entry(slot).or_default().push(at);
        }
        let batch = &batch;
        let limit = time_limit(batch.iter());
        let calls = by_slot.into_values().map(async |places| {
            let renewals = places.iter().map(|at| batch[*at].clone()).collect();
            places.into_iter().zip(self.renew_in_slot(&renewals, limit).await)
        });
        let mut renewed: Vec<_> = join_all(calls).await.into_iter().flatten().collect();
        renewed.sort_by_key(|(at, _)| *at);
        renewed.into_iter().map(|(_, reply)| reply).collect()
    }

    /// Renews claims of one slot. If the slot moves meanwhile, retries for as long as `limit`; later retries are the
    /// engine's.
    async fn renew_in_slot(&self, renewals: &Batch<RenewRequest>, limit: Duration) -> Batch<RenewReply> {
        let Some(first) = renewals.first() else {
            return Batch::new();
        };
        let slot = slot(first.claim.key.as_str().as_bytes());
        let until = self.now() + limit;
        let renew = |node: Arc<RedisStore>| async move {
            let replies = node.renew_within(renewals.iter().cloned().collect(), limit).await;
            // A node that does not serve the slot refuses the whole call.
            let refused = replies.iter().find_map(|reply| match reply {
                RenewReply::Unknown(error) if redirect(error, slot).is_some() => Some(error.clone()),
                _ => None,
            });
            refused.map_or(Ok(replies), Err)
        };
        let renewed = self.call_routed(&first.claim.key, until, renew).await;
        renewed.unwrap_or_else(|error| refused(renewals.len(), &error, RenewReply::Unknown))
    }

    async fn release_one(&self, request: &ReleaseRequest) -> Result<ReleaseReply, BackendError> {
        let release = |node: Arc<RedisStore>| async move {
            let successor = request.successor.as_ref();
            match successor.map(|successor| self.check_placement(&successor.claim, &node)) {
                Some(Err(_)) => node.release_without_successor(request).await,
                Some(Ok(())) | None => node.try_release(request).await,
            }
        };
        let until = self.now() + self.dialer.config.command_timeout;
        self.call_routed(request.target.key(), until, release).await
    }

    async fn release_all(&self, batch: Batch<ReleaseRequest>) -> Batch<ReleaseReply> {
        release_each(&batch, |request| self.release_one(request)).await
    }

    async fn inspect_query(&self, query: Query) -> Result<Page<LockStatus>, BackendError> {
        let key = match &query {
            Query::Key(key) => key,
            Query::Prefix { prefix, after, limit } => return self.list(prefix, after.as_ref(), *limit).await,
        };
        let query = &query;
        let inspect = |node: Arc<RedisStore>| async move { node.inspect_query(query.clone()).await };
        let until = self.now() + self.dialer.config.command_timeout;
        self.call_routed(key, until, inspect).await
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        // Ends the task that looks for moved slots. A child made by `fork` does not have it.
        if self.dialer.check_process().is_ok() {
            self.dialer.slots_may_have_moved();
        }
    }
}

impl fmt::Debug for RedisCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisCluster")
            .field(&self.dialer.config.address())
            .finish()
    }
}

impl Backend for RedisCluster {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.dialer.config.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        Call::new(async move { self.acquire_claim(&claim, not_after).await })
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        BatchCall::new(async move { self.renew_all(batch).await })
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        BatchCall::new(async move { self.release_all(batch).await })
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        Call::new(async move { self.watch_claim(claim).await })
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        let replaced = all_at(self.replaced.subscribe());
        Some(Invalidations::new(stream::select(
            replaced,
            self.evictions(client),
        )))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::new(async move { self.inspect_query(query).await })
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::new(async move { self.examine_nodes().await })
    }

    fn close(self: Arc<Self>) -> Call<()> {
        if let Err(forked) = self.dialer.check_process() {
            return Call::ready(Err(forked));
        }
        let nodes = self.nodes.lock().take();
        for node in nodes.iter().flat_map(|nodes| nodes.by_address.values()) {
            node.link.close();
            node.subscriptions.close();
        }
        self.dialer.slots_may_have_moved();
        Call::ready(Ok(()))
    }
}
