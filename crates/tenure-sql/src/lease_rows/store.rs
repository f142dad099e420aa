//! The store: its requests become statements on connections of the pool, each in a task of its own.

use std::fmt;
use std::sync::Arc;

use futures_util::stream;
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Finding, Instant,
    Invalidation, Invalidations, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest, Tasks, Wakes,
};

use super::own_claims::OwnClaims;
use super::profile::profile;
use super::rows::LeaseRows;
use super::session::LeaseSession;
use crate::server::dial::Dial;
use crate::server::error::Failure;
use crate::server::pool::Pool;

/// Locks in the rows of a table.
pub(crate) struct LeaseRowStore<D: Dial<Session: LeaseSession>> {
    rows: Arc<LeaseRows<D>>,
    tasks: Tasks,
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
        tasks: Tasks::of_this_runtime(),
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

impl<D: Dial<Session: LeaseSession>> Backend for LeaseRowStore<D> {
    fn profile(&self) -> &Profile {
        &self.rows.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.rows.config.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        let acquired = self.rows.clone().acquire(claim, not_after);
        self.tasks.call(self.clone(), acquired)
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let (rows, limits) = (self.rows.clone(), &self.rows.profile.limits);
        let renew = move |request| rows.clone().renew(request);
        self.tasks
            .each(self.clone(), limits, batch, renew, RenewReply::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let (rows, limits) = (self.rows.clone(), &self.rows.profile.limits);
        let release = move |request| rows.clone().release(request);
        self.tasks
            .each(self.clone(), limits, batch, release, ReleaseReply::Unknown)
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
        self.tasks.call(self.clone(), self.rows.clone().inspect(query))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.tasks.call(self.clone(), self.rows.clone().examine())
    }

    fn close(self: Arc<Self>) -> Call<()> {
        let closed = self.tasks.close();
        if closed.is_ok() {
            self.rows.pool.close();
        }
        Call::ready(closed)
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
