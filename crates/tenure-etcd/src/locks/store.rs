//! The store: its requests run in tasks of its own runtime, and a task removes claims that were not renewed.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Effect, Fault,
    Finding, Instant, Invalidations, LockKey, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest, SystemClock, Wakes,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::leases::{Lease, Leases};
use super::names::Names;
use super::profile::profile;
use super::requests::remove;
use super::table::{Placed, Spot, Table};
use super::targets::Watched;
use super::value::Value;
use crate::client::{Client, RangeRequest};
use crate::config::Config;

/// The pause before a key that could not be removed is removed again.
const REMOVE_AGAIN: Duration = Duration::from_secs(1);

/// The longest pause between two looks for claims whose leases have ended: a renewal may have shortened one.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// How long a claim is known to have expired.
const REMEMBERED: Duration = Duration::from_secs(60);

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
    /// The runtime on which the store was opened, and all its tasks run.
    runtime: Handle,
    process: u32,
}

/// What all requests share.
pub(super) struct Locks {
    pub(super) client: Arc<Client>,
    pub(super) config: Config,
    pub(super) profile: Profile,
    pub(super) names: Names,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Leases,
    pub(super) table: Table,
    pub(super) watched: Watched,
    is_closed: AtomicBool,
    /// Notified when a claim was placed, and when the store is closed.
    pub(super) placed: Arc<Notify>,
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
        let client = Arc::new(Client::new(config.clone())?);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let locks = Arc::new(Locks {
            profile: profile(&config),
            names: Names::new(config.prefix()),
            leases: Leases::new(client.clone(), clock.clone()),
            table: Table::default(),
            watched: Watched::default(),
            is_closed: AtomicBool::new(false),
            placed: Arc::default(),
            client,
            config,
            clock,
        });
        let first = RangeRequest::key(locks.names.listing("k"));
        locks.client.range(first).await?;
        tokio::spawn(end_claims(Arc::downgrade(&locks), locks.placed.clone()));
        Ok(Arc::new(EtcdStore {
            locks,
            runtime: Handle::current(),
            process: std::process::id(),
        }))
    }

    /// Runs work to its end on the store's runtime, even if its caller stops. Keeps the store until then: dropping it closes
    /// its connections.
    fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Result<T, BackendError>> + Send + 'static {
        let store = self.clone();
        async move {
            if store.process != std::process::id() {
                return Err(forked());
            }
            if store.locks.is_closed() {
                return Err(BackendError::closed());
            }
            store
                .runtime
                .spawn(work)
                .await
                .map_err(|error| match error.is_panic() {
                    true => BackendError::panicked(),
                    false => runtime_ended(),
                })
        }
    }

    fn call<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> Call<T> {
        let work = self.spawn(work);
        Call::new(async move { work.await.flatten() })
    }
}

/// Error for a call in a child made by `fork`, whose parent opened the connections.
fn forked() -> BackendError {
    let message = "this store belongs to the parent process: connect again after a fork";
    BackendError::new(Fault::Closed, Effect::None, message)
}

/// Error for a call whose task the runtime has dropped.
fn runtime_ended() -> BackendError {
    let message = "the runtime on which this store was opened has ended: open it on one that lives longer";
    BackendError::new(Fault::Closed, Effect::Unknown, message)
}

impl Backend for EtcdStore {
    fn profile(&self) -> &Profile {
        &self.locks.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.locks.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        self.call(self.locks.clone().acquire(claim, not_after))
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let count = batch.len();
        let renewed = self.spawn(self.locks.clone().renew(batch));
        BatchCall::new(async move {
            let failed =
                |error: BackendError| (0..count).map(|_| RenewReply::Unknown(error.clone())).collect();
            renewed.await.unwrap_or_else(failed)
        })
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let too_many = self.locks.profile.limits.check_batch(batch.len());
        let release = |request| {
            let (locks, too_many) = (self.locks.clone(), too_many.clone());
            self.spawn(async move {
                too_many?;
                locks.release(request).await
            })
        };
        let released: Vec<_> = batch.into_iter().map(release).collect();
        BatchCall::new(async move {
            let replies = join_all(released).await.into_iter();
            replies
                .map(|reply| reply.flatten().unwrap_or_else(ReleaseReply::Unknown))
                .collect()
        })
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        let locks = self.locks.clone();
        self.call(async move { Ok(locks.watch(&claim)) })
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        Some(self.locks.clone().invalidations(client, &self.runtime))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.call(self.locks.clone().inspect(query))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.call(self.locks.clone().examine())
    }

    fn close(self: Arc<Self>) -> Call<()> {
        if self.process != std::process::id() {
            return Call::ready(Err(forked()));
        }
        self.locks.close();
        Call::ready(Ok(()))
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
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.client.close();
        self.placed.notify_one();
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

    /// Removes a claim's key. Returns whether it was there.
    pub(super) async fn remove(&self, placed: &Placed) -> Result<bool, BackendError> {
        remove(&self.client, &placed.spot.key, placed.created).await
    }

    /// Removes the key of a claim that has ended, and then frees its place.
    async fn withdraw_until_gone(self: Arc<Self>, key: LockKey, spot: Spot) {
        while let Err(error) = self.withdraw(&spot).await {
            if !removes_again(&error, &spot.lease, self.now()).await {
                return;
            }
        }
        spot.lease.free(&key);
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.locks.close();
    }
}

/// Waits for the next attempt to remove a key, after this error. Attempts go on until etcd has answered, because the other claims
/// on the lease would keep the key alive for ever. Returns false if nothing keeps the lease alive any more, which then ends the
/// key.
pub(super) async fn removes_again(error: &BackendError, lease: &Lease, now: Instant) -> bool {
    if error.fault() == Fault::Closed || lease.ends_unless_kept(now) {
        return false;
    }
    sleep(REMOVE_AGAIN).await;
    true
}

/// Ends claims that were not renewed in time. Their lease may live on, with other claims.
async fn end_claims(locks: Weak<Locks>, placed: Arc<Notify>) {
    loop {
        let Some(held) = locks.upgrade().filter(|held| !held.is_closed()) else {
            return;
        };
        for (key, spot) in held.table.expire(held.now(), REMEMBERED) {
            tokio::spawn(held.clone().withdraw_until_gone(key, spot));
        }
        let next = held.table.next_end().map(|end| end - held.now());
        drop(held);
        match next {
            Some(left) => sleep(left.min(MAX_PAUSE)).await,
            None => placed.notified().await,
        }
    }
}
