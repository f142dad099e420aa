//! The store: its requests run in tasks of its own runtime, and a task removes claims that were not renewed.

use std::fmt;
use std::sync::Arc;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Finding, Instant,
    Invalidations, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
    SystemClock, Tasks, Wakes,
};
use tenure_contenders::{Contenders as _, Table, Value, Watched, end_claims, release};

use super::hints::Hints;
use super::names::Names;
use super::placed::{Placed, Target};
use super::profile::profile;
use super::sessions::Sessions;
use crate::config::Config;

/// Locks in ZooKeeper, in one of three [layouts](crate::Layout).
///
/// # Examples
/// ```no_run
/// use tenure_zookeeper::{Config, ZookeeperStore, StoreUrl};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_url(&StoreUrl::parse("zookeeper://zk.example/locks")?)?;
/// let store = ZookeeperStore::open(config).await?;
/// # Ok(())
/// # }
/// ```
pub struct ZookeeperStore {
    locks: Arc<Locks>,
    tasks: Tasks,
}

/// What all requests share.
pub(super) struct Locks {
    pub(super) config: Config,
    pub(super) profile: Profile,
    pub(super) names: Names,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sessions: Sessions,
    pub(super) table: Table<Placed>,
    pub(super) watched: Watched<Target>,
    pub(super) hints: Hints,
}

impl ZookeeperStore {
    /// Opens a session, and opens the store on the runtime of the caller.
    ///
    /// # Cancel safety
    /// Dropping the future opens nothing.
    ///
    /// # Errors
    /// `Invalid` for certificates that cannot be used, `Unavailable` if no server answers, `Denied` if ZooKeeper refuses the
    /// user, the password or to create the node of the sessions.
    pub async fn open(config: Config) -> Result<Arc<dyn Backend>, BackendError> {
        let locks = Arc::new(Locks {
            profile: profile(&config),
            names: Names::new(config.path(), config.layout),
            sessions: Sessions::default(),
            table: Table::default(),
            watched: Watched::default(),
            hints: Hints::default(),
            clock: Arc::new(SystemClock),
            config,
        });
        locks.any_session().await?;
        tokio::spawn(end_claims(Arc::downgrade(&locks)));
        let tasks = Tasks::of_this_runtime();
        Ok(Arc::new(ZookeeperStore { locks, tasks }))
    }
}

impl Backend for ZookeeperStore {
    fn profile(&self) -> &Profile {
        &self.locks.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.locks.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        let acquired = self.locks.clone().acquire(claim, not_after);
        self.tasks.call(self.clone(), acquired)
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let (locks, limits) = (self.locks.clone(), &self.locks.profile.limits);
        let renew = |batch| locks.renew(batch);
        self.tasks
            .batch(self.clone(), limits, batch, renew, RenewReply::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let (locks, limits) = (self.locks.clone(), &self.locks.profile.limits);
        let release = move |request| release(locks.clone(), request);
        self.tasks
            .each(self.clone(), limits, batch, release, ReleaseReply::Unknown)
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        let locks = self.locks.clone();
        self.tasks
            .call(self.clone(), async move { Ok(locks.watch(&claim).await) })
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        Some(self.locks.invalidations(client))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.tasks.call(self.clone(), self.locks.clone().inspect(query))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.tasks.call(self.clone(), self.locks.clone().examine())
    }

    fn close(self: Arc<Self>) -> Call<()> {
        let closed = self.tasks.close();
        if closed.is_ok() {
            self.locks.close();
        }
        Call::ready(closed)
    }
}

impl fmt::Debug for ZookeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZookeeperStore")
            .field(&self.locks.config.address())
            .finish()
    }
}

impl Locks {
    fn close(&self) {
        self.table.close();
        self.sessions.close();
        self.table.forget();
    }

    /// The data of a claim's node.
    pub(super) fn value(&self, claim: &Claim) -> Value {
        Value::of(claim, self.profile.limits.grants(claim.grants))
    }
}

impl Drop for ZookeeperStore {
    fn drop(&mut self) {
        self.locks.close();
    }
}
