//! The store: its requests run in tasks of its own runtime, and a task removes claims that were not renewed.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Effect, Fault,
    Finding, Instant, Invalidations, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest, SystemClock, Wakes,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::names::Names;
use super::profile::profile;
use super::sessions::Sessions;
use super::table::{Expired, Table};
use super::targets::{Hints, Watched};
use super::value::Value;
use crate::client::is_session_end;
use crate::config::Config;

/// The pause before a node that could not be removed is removed again.
const REMOVE_AGAIN: Duration = Duration::from_secs(1);

/// The shortest pause between two looks for claims whose leases have ended: a call may hold up the end of one.
const MIN_PAUSE: Duration = Duration::from_millis(5);

/// The longest pause between two looks for claims whose leases have ended: a renewal may have shortened one.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// How long a claim is known to have expired.
const REMEMBERED: Duration = Duration::from_secs(60);

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
    /// The runtime on which the store was opened, and all its tasks run.
    runtime: Handle,
    process: u32,
}

/// What all requests share.
pub(super) struct Locks {
    pub(super) config: Config,
    pub(super) profile: Profile,
    pub(super) names: Names,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) sessions: Sessions,
    pub(super) table: Table,
    pub(super) watched: Watched,
    pub(super) hints: Hints,
    is_closed: AtomicBool,
    /// Notified when a claim was placed, and when the store is closed.
    pub(super) placed: Arc<Notify>,
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
            is_closed: AtomicBool::new(false),
            placed: Arc::default(),
            clock: Arc::new(SystemClock),
            config,
        });
        locks.any_session().await?;
        tokio::spawn(end_claims(Arc::downgrade(&locks), locks.placed.clone()));
        Ok(Arc::new(ZookeeperStore {
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

impl Backend for ZookeeperStore {
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
        self.call(async move { Ok(locks.watch(&claim).await) })
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        Some(self.locks.invalidations(client))
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

impl fmt::Debug for ZookeeperStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZookeeperStore")
            .field(&self.locks.config.address())
            .finish()
    }
}

impl Locks {
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.sessions.close();
        self.table.close();
        self.placed.notify_one();
    }

    /// The data of a claim's node.
    pub(super) fn value(&self, claim: &Claim) -> Value {
        Value::of(claim, self.profile.limits.grants(claim.grants))
    }

    /// Removes the nodes of a claim that has ended. Repeats this while its session may live, because other claims keep it alive.
    async fn remove_until_gone(self: Arc<Self>, expired: Expired) {
        let remove = async || match &expired {
            Expired::Placed(placed) => self.remove(placed).await,
            Expired::InFlight(id, spot) => self.withdraw(*id, spot).await,
        };
        while let Err(error) = remove().await {
            if is_session_end(&error) || self.is_closed() {
                return;
            }
            // sleep: no event tells when ZooKeeper answers again.
            sleep(REMOVE_AGAIN).await;
        }
    }
}

impl Drop for ZookeeperStore {
    fn drop(&mut self) {
        self.locks.close();
    }
}

/// Ends claims that were not renewed in time. Their session lives on, with other claims.
async fn end_claims(locks: Weak<Locks>, placed: Arc<Notify>) {
    loop {
        let Some(held) = locks.upgrade().filter(|held| !held.is_closed()) else {
            return;
        };
        for expired in held.table.expire(held.now(), REMEMBERED) {
            tokio::spawn(held.clone().remove_until_gone(expired));
        }
        let next = held.table.next_end().map(|end| end - held.now());
        drop(held);
        match next {
            // sleep: until the next lease ends.
            Some(left) => sleep(left.clamp(MIN_PAUSE, MAX_PAUSE)).await,
            None => placed.notified().await,
        }
    }
}
