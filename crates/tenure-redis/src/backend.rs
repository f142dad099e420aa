//! The store and its implementation of [`Backend`].

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::stream;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Finding, Instant,
    Invalidations, LockKey, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest, Wakes,
};

use crate::claims::names::{COUNTER, tagged};
use crate::claims::script::Layout;
use crate::claims::table::ClaimTable;
use crate::config::Config;
use crate::connection::dial::Dialer;
use crate::connection::link::{Link, all_at};
use crate::error::invalid;
use crate::topology::Topology;
use crate::watch::Subscriptions;

/// Locks in Redis, in the configured [`Layout`](crate::Layout).
///
/// All rules of [`Backend`] hold for the locks that the [`profile`](Backend::profile) lists. Clone the [`Arc`] that
/// [`connect`](Self::connect) returns to share the store.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_backend::Backend;
/// use tenure_endpoint::StoreUrl;
/// use tenure_redis::{Config, RedisStore};
///
/// let config = Config::from_url(&StoreUrl::parse("redis://cache.example")?)?;
/// let store = RedisStore::connect(config).await?;
/// assert_eq!(store.profile().layout, "redisson");
/// # Ok(()) }
/// ```
pub struct RedisStore {
    pub(crate) link: Link,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) claims: Arc<ClaimTable>,
    pub(crate) layout: &'static Layout,
    profile: Profile,
    /// A listing has already logged the warning that the server has many keys.
    pub(crate) warned_of_many: AtomicBool,
}

impl RedisStore {
    /// Connects to the server, with a single attempt. Tries again only if a replica was being promoted meanwhile.
    ///
    /// # Cancel safety
    /// If the future is dropped, the attempt goes on to its end in the background, and its connections are then closed.
    ///
    /// # Errors
    /// `Unavailable` if the server cannot be reached or is not ready, `Denied` if it refuses the user or the password,
    /// `Unsupported` if it cannot serve locks, `Invalid` if a setting is wrong, such as a malformed certificate or a
    /// database that does not exist, `Store` if the host is unknown, the TLS handshake fails, one side refuses the other's
    /// certificate, and for any other refusal. The server has then changed no lock.
    pub async fn connect(config: Config) -> Result<Arc<Self>, BackendError> {
        let link = Link::open(Dialer::new(no_cluster(config)?)?).await?;
        Ok(Arc::new(Self::on(link, Arc::default())))
    }

    /// Creates a store that connects in the background, and retries until an attempt succeeds or fails with a
    /// permanent error. Until it is connected, each call waits for the attempt in progress or starts one, and fails if
    /// that attempt fails.
    ///
    /// For a quorum, which works while one of its servers cannot be reached.
    ///
    /// # Errors
    /// `Invalid` if a setting is wrong, such as a malformed certificate, `Unsupported` for TLS without the feature
    /// `tls`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect_later(config: Config) -> Result<Arc<Self>, BackendError> {
        let link = Link::open_later(Dialer::new(no_cluster(config)?)?);
        Ok(Arc::new(Self::on(link, Arc::default())))
    }

    /// The client of one node of a cluster. `claims` is the table of all nodes. Connects at its first call.
    pub(crate) fn of_node(dialer: Dialer, claims: Arc<ClaimTable>) -> Self {
        Self::on(Link::unopened(dialer), claims)
    }

    fn on(link: Link, claims: Arc<ClaimTable>) -> Self {
        RedisStore {
            subscriptions: Subscriptions::new(link.dialer.clone(), link.replacements()),
            layout: link.dialer.config.layout.scripts(),
            profile: link.dialer.config.profile(),
            link,
            claims,
            warned_of_many: AtomicBool::new(false),
        }
    }

    /// Key of the counter from which a lock's tokens are drawn: with `fencing=redisson` that of Redisson's RFencedLock.
    pub(crate) fn counter(&self, key: &LockKey) -> Cow<'static, str> {
        if self.link.dialer.config.redisson_fencing {
            tagged("redisson_lock_token:", key).into()
        } else {
            COUNTER.into()
        }
    }

    /// The configured layout: how locks are named in Redis.
    pub(crate) fn format(&self) -> &crate::layout::Layout {
        &self.link.dialer.config.layout
    }

    /// The server as `host:port`, or the name of the master and its sentinels.
    pub(crate) fn address(&self) -> String {
        self.link.dialer.config.address()
    }

    pub(crate) fn now(&self) -> Instant {
        self.link.dialer.config.clock.now()
    }
}

/// Fails for the URL of a cluster.
fn no_cluster(config: Config) -> Result<Config, BackendError> {
    match config.topology {
        Topology::Cluster(..) => Err(invalid(
            "this is the URL of a cluster: connect with `RedisCluster`",
        )),
        _ => Ok(config),
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStore").field(&self.address()).finish()
    }
}

impl Backend for RedisStore {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.link.dialer.config.clock
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
        Call::new(async move { self.subscriptions.watch(&claim).await })
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        let evictions = self.subscriptions.invalidations(client).ok()?;
        let replaced = all_at(self.link.replacements());
        Some(Invalidations::new(stream::select(replaced, evictions)))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::new(async move { self.inspect_query(query).await })
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::new(async move { self.examine_server("").await })
    }

    fn close(self: Arc<Self>) -> Call<()> {
        if let Err(forked) = self.link.dialer.check_process() {
            return Call::ready(Err(forked));
        }
        self.link.close();
        self.subscriptions.close();
        Call::ready(Ok(()))
    }
}
