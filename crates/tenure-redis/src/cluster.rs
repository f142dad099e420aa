//! Redis Cluster as one store: a [`RedisStore`](crate::RedisStore) for each node, and a map from slots to nodes.
//!
//! All keys of a lock are in one slot. A call goes to the node of that slot, and follows the slot when it moves
//! ([`route`]). The nodes share one table of claims, because claims move with their slots. `nodes` keeps the map, `wakes`
//! moves subscriptions, and `listing` joins the listings of all nodes.

mod examine;
mod listing;
mod nodes;
mod route;
mod wakes;

use std::collections::BTreeMap;
use std::fmt;
use std::slice;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, Clock, Finding, Instant, LockStatus,
    Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakes,
};
use tokio::sync::{Notify, watch};

use crate::claims::slot::slot_of;
use crate::claims::table::ClaimTable;
use crate::config::Config;
use crate::connection::dial::Dialer;
use crate::connection::link::wakes_at;
use crate::error::invalid;
use crate::layout::Layout;
use crate::profile::LIMITS;
use crate::renew::MIN_TIMEOUT;
use crate::topology::Topology;
pub use nodes::RedisCluster;
use nodes::keep_looking;

impl RedisCluster {
    /// Connects to the first node of the URL that answers, and learns the others from it.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connections that were opened.
    ///
    /// # Errors
    /// As [`RedisStore::connect`](crate::RedisStore::connect); `Unsupported` if the server is no node of a cluster, for `replicas`, and
    /// for the layout `spring`.
    pub async fn connect(config: Config) -> Result<Arc<Self>, BackendError> {
        let Topology::Cluster(node, others) = &config.topology else {
            return Err(invalid(
                "this is no URL of a cluster: write `redis+cluster://HOST,HOST`",
            ));
        };
        let seeds = [slice::from_ref(node), others].concat();
        check_settings(&config)?;
        let moves = Arc::new(Notify::new());
        let dialer = Dialer::new(config)?.for_cluster(moves.clone());
        let cluster = Arc::new(RedisCluster {
            dialer,
            seeds,
            claims: Arc::new(ClaimTable::of_cluster()),
            nodes: Mutex::default(),
            moves: moves.clone(),
            changed: watch::Sender::new(()),
            replaced: watch::Sender::new(()),
        });
        cluster.look().await?;
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
        let mut route = self.route(&claim.at.key, not_after)?;
        loop {
            match route.node()?.acquire_claim(claim, not_after).await {
                Err(error) => route.follow(error).await?,
                reply => return reply,
            }
        }
    }

    /// Renews the claims of each slot in calls of their own; those of a node travel together.
    async fn renew_all(&self, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return batch.iter().map(|_| RenewReply::Unknown(error.clone())).collect();
        }
        let mut replies: Vec<Option<RenewReply>> = batch.iter().map(|_| None).collect();
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, renewal) in batch.iter().enumerate() {
            match slot_of(&renewal.claim.key) {
                Ok(slot) => by_slot.entry(slot).or_default().push(at),
                Err(error) => replies[at] = Some(RenewReply::Unknown(error)),
            }
        }
        let batch = &batch;
        let calls = by_slot.into_values().map(async |places| {
            let renewals = || places.iter().map(|at| batch[*at].clone()).collect();
            (self.renew_in_slot(renewals).await, places)
        });
        for (renewed, places) in join_all(calls).await {
            for (at, reply) in places.into_iter().zip(renewed) {
                replies[at] = Some(reply);
            }
        }
        replies.into_iter().flatten().collect()
    }

    /// Renews claims of one slot. If it moves meanwhile, retries for a sixth of the shortest lease: then the engine does.
    async fn renew_in_slot(&self, renewals: impl Fn() -> Batch<RenewRequest>) -> Batch<RenewReply> {
        let batch = renewals();
        let shortest = batch
            .iter()
            .map(|renewal| renewal.lease)
            .min()
            .unwrap_or_default();
        let until = self.now() + (shortest / 6).max(MIN_TIMEOUT);
        let unknown =
            |error: BackendError| batch.iter().map(|_| RenewReply::Unknown(error.clone())).collect();
        let Some(first) = batch.first() else {
            return Batch::new();
        };
        let mut route = match self.route(&first.claim.key, until) {
            Ok(route) => route,
            Err(error) => return unknown(error),
        };
        loop {
            let replies = match route.node() {
                Ok(node) => node.renew_all(renewals()).await,
                Err(error) => return unknown(error),
            };
            // A node that does not serve the slot refuses the whole call.
            let refused = replies.iter().find_map(|reply| match reply {
                RenewReply::Unknown(error) if route::redirect(error).is_some() => Some(error.clone()),
                _ => None,
            });
            let Some(refused) = refused else { return replies };
            if let Err(error) = route.follow(refused).await {
                return unknown(error);
            }
        }
    }

    async fn release_one(&self, request: &ReleaseRequest) -> Result<ReleaseReply, BackendError> {
        let until = self.now() + self.dialer.config.command_timeout;
        let mut route = self.route(request.target.key(), until)?;
        loop {
            match route.node()?.try_release(request).await {
                Err(error) => route.follow(error).await?,
                reply => return reply,
            }
        }
    }

    async fn release_all(&self, batch: Batch<ReleaseRequest>) -> Batch<ReleaseReply> {
        if let Err(error) = LIMITS.check_batch(batch.len()) {
            return batch
                .iter()
                .map(|_| ReleaseReply::Unknown(error.clone()))
                .collect();
        }
        let released = join_all(batch.iter().map(|request| self.release_one(request))).await;
        let replies = released.into_iter();
        replies
            .map(|reply| reply.unwrap_or_else(ReleaseReply::Unknown))
            .collect()
    }

    async fn inspect_query(&self, query: Query) -> Result<Page<LockStatus>, BackendError> {
        let key = match &query {
            Query::Key(key) => key,
            Query::Prefix { prefix, after, limit } => return self.list(prefix, after.as_ref(), *limit).await,
        };
        let mut route = self.route(key, self.now() + self.dialer.config.command_timeout)?;
        loop {
            match route.node()?.inspect_query(query.clone()).await {
                Err(error) => route.follow(error).await?,
                page => return page,
            }
        }
    }
}

/// Fails for settings that a cluster does not serve.
fn check_settings(config: &Config) -> Result<(), BackendError> {
    if config.acknowledgement.is_some() {
        return Err(BackendError::unsupported(
            "`replicas` is not served on a cluster: leave it out, or name a single server or sentinels",
        ));
    }
    match &config.layout {
        Layout::Redisson | Layout::Plain => Ok(()),
        Layout::Spring { .. } => Err(BackendError::unsupported(
            "the layout `spring` is not served on a cluster, where its channels are in other slots than its keys: use the layout \
             `redisson` or `plain`, or a single server",
        )),
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        // Ends the task that looks for moved slots. A child made by `fork` does not have it.
        if self.dialer.check_process().is_ok() {
            self.moves.notify_one();
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
        self.dialer.config.layout.profile()
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

    fn reconnects(&self) -> Option<Wakes> {
        Some(wakes_at(self.replaced.subscribe()))
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
        for node in self.nodes.lock().close() {
            node.link.close();
            node.subscriptions.close();
        }
        self.moves.notify_one();
        Call::ready(Ok(()))
    }
}
