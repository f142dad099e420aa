//! The store of a library's user: its requests run in tasks of its own runtime, and a task ends claims that were not renewed.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tenure_backend::{
    AcquireReply, Backend, Batch, BatchCall, Call, Claim, ClientId, Clock, Finding, Instant, Invalidations,
    LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Tasks, Wakes,
};
use tokio::runtime::Handle;

use crate::acquire::{Acquire, acquire};
use crate::inspect::{Examine, Inspect, inspect};
use crate::release::release;
use crate::renew::{Renew, renew};
use crate::store::end_claims;

/// A store that reports changes.
pub trait Watch: Acquire + Renew + Inspect + Examine {
    /// Wakes a claim when what it waits for has changed.
    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> impl Future<Output = Wakes> + Send;

    /// Reports the claims of a client that may be gone.
    fn invalidations(self: Arc<Self>, client: ClientId, runtime: &Handle) -> Invalidations;
}

/// Opens a store on the runtime of the caller.
///
/// # Panics
/// If the caller is not on a runtime.
pub fn open<S: Watch>(locks: Arc<S>) -> Arc<dyn Backend> {
    tokio::spawn(end_claims(Arc::downgrade(&locks)));
    let tasks = Tasks::of_this_runtime();
    Arc::new(Store { locks, tasks })
}

struct Store<S: Watch> {
    locks: Arc<S>,
    tasks: Tasks,
}

impl<S: Watch> Backend for Store<S> {
    fn profile(&self) -> &Profile {
        self.locks.profile()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.locks.clock()
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        let acquired = acquire(self.locks.clone(), claim, not_after);
        self.tasks.call(self.clone(), acquired)
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let (locks, limits) = (self.locks.clone(), &self.profile().limits);
        let renew = |batch| renew(locks, batch);
        self.tasks
            .batch(self.clone(), limits, batch, renew, RenewReply::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let (locks, limits) = (self.locks.clone(), &self.profile().limits);
        let release = move |request| release(locks.clone(), request);
        self.tasks
            .each(self.clone(), limits, batch, release, ReleaseReply::Unknown)
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        let wakes = self.locks.clone().watch(claim);
        self.tasks.call(self.clone(), async { Ok(wakes.await) })
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        let locks = self.locks.clone();
        Some(locks.invalidations(client, self.tasks.runtime()))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.tasks.call(self.clone(), inspect(self.locks.clone(), query))
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

impl<S: Watch> fmt::Debug for Store<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.profile().store;
        f.debug_tuple(name).field(&self.locks.address()).finish()
    }
}

impl<S: Watch> Drop for Store<S> {
    fn drop(&mut self) {
        self.locks.close();
    }
}
