//! The store: its requests run in tasks of its own runtime, and a task removes claims that were not renewed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Finding, Instant,
    Invalidations, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
    SystemClock, Tasks, Wakes,
};
use tenure_contenders::{Contenders as _, Table, Value, Watched, end_claims, release};

use super::leases::Leases;
use super::names::Names;
use super::placed::{Found, Placed};
use super::profile::profile;
use crate::client::{Client, RANGE, RangeRequest};
use crate::config::Config;

/// Locks in etcd: mutexes, read-write locks and semaphores, all first come, first served.
///
/// # Examples
/// ```no_run
/// use tenure_etcd::{Config, EtcdStore, StoreUrl};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_url(&StoreUrl::parse("etcd://etcd.example/locks")?)?;
/// let store = EtcdStore::open(config).await?;
/// # Ok(())
/// # }
/// ```
pub struct EtcdStore {
    locks: Arc<Locks>,
    tasks: Tasks,
}

/// What all requests share.
pub(super) struct Locks {
    pub(super) client: Arc<Client>,
    pub(super) config: Config,
    pub(super) profile: Profile,
    pub(super) names: Names,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Leases,
    pub(super) table: Table<Placed>,
    pub(super) watched: Watched<Found>,
}

impl EtcdStore {
    /// Connects to a member, and opens the store on the runtime of the caller.
    ///
    /// # Cancel safety
    /// Dropping the future opens nothing.
    ///
    /// # Errors
    /// `Invalid` for certificates that cannot be used, `Unavailable` if no member answers, `Denied` if etcd refuses the user,
    /// the password or to read the prefix.
    pub async fn open(config: Config) -> Result<Arc<dyn Backend>, BackendError> {
        let client = Client::new(config.clone())?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let locks = Arc::new(Locks {
            profile: profile(&config),
            names: Names::new(config.prefix()),
            leases: Leases::new(client.clone(), clock.clone()),
            table: Table::default(),
            watched: Watched::default(),
            client,
            config,
            clock,
        });
        let first = RangeRequest::key(locks.names.listing("k"));
        locks.client.call(RANGE, first).await?;
        tokio::spawn(end_claims(Arc::downgrade(&locks)));
        let tasks = Tasks::of_this_runtime();
        Ok(Arc::new(EtcdStore { locks, tasks }))
    }
}

impl Backend for EtcdStore {
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
            .call(self.clone(), async move { Ok(locks.watch(&claim)) })
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        let locks = self.locks.clone();
        Some(locks.invalidations(client, self.tasks.runtime()))
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

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdStore")
            .field(&self.locks.config.address())
            .finish()
    }
}

impl Locks {
    fn close(&self) {
        self.client.close();
        self.table.close();
    }

    /// The length of a claim's lease: etcd counts whole seconds.
    pub(super) fn ttl(&self, lease: Duration) -> Duration {
        let lease = self.profile.limits.lease(lease);
        Duration::from_secs(lease.as_secs() + u64::from(lease.subsec_nanos() > 0))
    }

    /// What the key of a claim says.
    pub(super) fn value(&self, claim: &Claim) -> Value {
        Value::of(claim, self.profile.limits.grants(claim.grants))
    }

    /// The value that a claim's key gets.
    pub(super) fn written(&self, claim: &Claim) -> String {
        match claim.is_candidate {
            true => claim.label.to_string(),
            false => self.value(claim).write(),
        }
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.locks.close();
    }
}
