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
use tokio::sync::watch;

use super::own_claims::OwnClaims;
use super::profile::profile;
use super::rows::LeaseRows;
use super::session::LeaseSession;
use super::statement::Statements;
use super::table::schema;
use crate::server::Config;
use crate::server::error::Failure;
use crate::server::pool::{Pool, Priority};

/// Connects once, to check the server and the table, and returns the store. It runs on the runtime of the caller.
pub(crate) async fn open<S: LeaseSession>(config: Config) -> Result<Arc<dyn Backend>, BackendError> {
    let pool = Pool::<S>::new(config)?;
    let config = &pool.config;
    let check = async |session: &mut S| session.check(config).await;
    let checked = pool.with(Priority::Low, check).await;
    Ok(Arc::new(LeaseRows {
        widths: checked.map_err(Failure::into_error)?,
        statements: Statements::new(&S::dialect(config)),
        profile: profile(config),
        swept: Mutex::new(config.clock.now()),
        claims: OwnClaims::default(),
        tasks: Tasks::of_this_runtime(),
        pool,
    }))
}

/// Connects once, and creates the table.
pub(crate) async fn create<S: LeaseSession>(config: Config) -> Result<(), BackendError> {
    let dialect = S::dialect(&config);
    let script = dialect.expand("{one_at_a_time}") + &schema(config.layout, &dialect);
    let pool = Pool::<S>::new(config)?;
    let create = async |session: &mut S| session.script(&script).await;
    let created = pool.with(Priority::Low, create).await;
    pool.close();
    created.map_err(Failure::into_error)
}

impl<S: LeaseSession> Backend for LeaseRows<S> {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.pool.config.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        let acquired = self.clone().acquire_row(claim, not_after, Priority::Low);
        self.tasks.call(self.clone(), acquired)
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let (rows, limits) = (self.clone(), &self.profile.limits);
        let renew = move |request| rows.clone().renew_one(request);
        self.tasks
            .each(self.clone(), limits, batch, renew, RenewReply::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let (rows, limits) = (self.clone(), &self.profile.limits);
        let release = move |request| rows.clone().release_one(request);
        self.tasks
            .each(self.clone(), limits, batch, release, ReleaseReply::Unknown)
    }

    fn watch(self: Arc<Self>, _: Arc<Claim>) -> Call<Wakes> {
        let message = "this layout has no wake-ups: waiters poll";
        Call::ready(Err(BackendError::unsupported(message)))
    }

    fn invalidations(self: Arc<Self>, _: ClientId) -> Option<Invalidations> {
        // A new receiver reports the present connection as a change, too.
        let mut replaced = self.pool.replaced.subscribe();
        replaced.mark_changed();
        let next = async |mut replaced: watch::Receiver<()>| {
            let changed = replaced.changed().await;
            changed.ok().map(|()| (Invalidation::All, replaced))
        };
        Some(Invalidations::new(stream::unfold(replaced, next)))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.tasks.call(self.clone(), self.clone().list(query))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.tasks.call(self.clone(), self.clone().find_weaknesses())
    }

    fn close(self: Arc<Self>) -> Call<()> {
        let closed = self.tasks.close();
        if closed.is_ok() {
            self.pool.close();
        }
        Call::ready(closed)
    }
}

impl<S: LeaseSession> Drop for LeaseRows<S> {
    fn drop(&mut self) {
        self.pool.close();
    }
}

impl<S: LeaseSession> fmt::Debug for LeaseRows<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseRows({:?})", self.pool.config.address())
    }
}
