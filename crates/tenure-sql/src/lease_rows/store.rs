//! The store: its requests become statements on connections of the pool, each in a task of its own.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream;
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Effect, Fault,
    Finding, Instant, Invalidation, Invalidations, LockStatus, Page, Profile, Query, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Wakes,
};
use tokio::runtime::Handle;

use super::own_claims::OwnClaims;
use super::profile::profile;
use super::rows::LeaseRows;
use super::session::LeaseSession;
use crate::server::dial::Dial;
use crate::server::error::{Failure, runtime_ended};
use crate::server::pool::Pool;

/// Locks in the rows of a table.
pub(crate) struct LeaseRowStore<D: Dial<Session: LeaseSession>> {
    rows: Arc<LeaseRows<D>>,
    /// The runtime on which the store was opened, and all its tasks run.
    runtime: Handle,
    process: u32,
}

/// Connects once, to check the server and the table, and returns the store. It runs on the runtime of the caller.
pub(crate) async fn open<D: Dial<Session: LeaseSession>>(
    dialer: D,
) -> Result<Arc<dyn Backend>, BackendError> {
    let config = dialer.config().clone();
    let pool = Pool::new(dialer);
    let mut leased = pool.lease().await?;
    let statements = leased.session.statements(&config);
    let checked = pool.within(leased.session.check(&config)).await;
    let rows = LeaseRows {
        widths: leased.end(checked).map_err(Failure::into_error)?,
        pool,
        statements,
        profile: profile(&config),
        swept: Mutex::new(config.clock.now()),
        config,
        claims: OwnClaims::default(),
    };
    Ok(Arc::new(LeaseRowStore {
        rows: Arc::new(rows),
        runtime: Handle::current(),
        process: std::process::id(),
    }))
}

/// Connects once, and creates a table.
pub(crate) async fn create<D: Dial<Session: LeaseSession>>(
    dialer: D,
    script: &str,
) -> Result<(), BackendError> {
    let pool = Pool::new(dialer);
    let mut leased = pool.lease().await?;
    let created = pool.within(leased.session.script(script)).await;
    let created = leased.end(created).map_err(Failure::into_error);
    pool.close();
    created
}

impl<D: Dial<Session: LeaseSession>> LeaseRowStore<D> {
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

    /// Runs one task for each element of a batch. `failed` makes an answer of an error.
    fn batch<A: Send + 'static, T: Send + 'static, F>(
        self: &Arc<Self>,
        batch: Batch<A>,
        work: fn(Arc<LeaseRows<D>>, A) -> F,
        failed: fn(BackendError) -> T,
    ) -> BatchCall<T>
    where
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        let too_many = self.rows.profile.limits.check_batch(batch.len());
        let rows = self.rows.clone();
        let works: Vec<_> = batch
            .into_iter()
            .map(|element| {
                let (rows, too_many) = (rows.clone(), too_many.clone());
                self.spawn(async move {
                    too_many?;
                    work(rows, element).await
                })
            })
            .collect();
        BatchCall::new(async move {
            let replies = join_all(works).await.into_iter();
            replies
                .map(|reply| reply.flatten().unwrap_or_else(failed))
                .collect()
        })
    }
}

/// Error for a call in a child made by `fork`, whose parent opened the connections.
fn forked() -> BackendError {
    let message = "this store belongs to the parent process: connect again after a fork";
    BackendError::new(Fault::Closed, Effect::None, message)
}

impl<D: Dial<Session: LeaseSession>> Backend for LeaseRowStore<D> {
    fn profile(&self) -> &Profile {
        &self.rows.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.rows.config.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        self.call(self.rows.clone().acquire(claim, not_after))
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        self.batch(batch, LeaseRows::renew, RenewReply::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        self.batch(batch, LeaseRows::release, ReleaseReply::Unknown)
    }

    fn watch(self: Arc<Self>, _: Arc<Claim>) -> Call<Wakes> {
        Call::ready(Err(BackendError::unsupported(
            "this layout has no wake-ups: waiters poll",
        )))
    }

    fn invalidations(self: Arc<Self>, _: ClientId) -> Option<Invalidations> {
        // A new receiver reports the present connection as a change, too.
        let mut replaced = self.rows.pool.replacements();
        replaced.mark_changed();
        Some(Invalidations::new(stream::unfold(
            replaced,
            async |mut replaced| {
                let changed = replaced.changed().await;
                changed.ok().map(|()| (Invalidation::All, replaced))
            },
        )))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.call(self.rows.clone().inspect(query))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.call(self.rows.clone().examine())
    }

    fn close(self: Arc<Self>) -> Call<()> {
        if self.process != std::process::id() {
            return Call::ready(Err(forked()));
        }
        self.rows.pool.close();
        Call::ready(Ok(()))
    }
}

impl<D: Dial<Session: LeaseSession>> Drop for LeaseRowStore<D> {
    fn drop(&mut self) {
        self.rows.pool.close();
    }
}

impl<D: Dial<Session: LeaseSession>> fmt::Debug for LeaseRowStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaseRowStore")
            .field(&self.rows.config.address())
            .finish()
    }
}
