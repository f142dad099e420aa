//! The store of a client. If the backend panics when it creates a [`Call`], the call fails, just as if the [`Call`]
//! had panicked later.

use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Instant, Invalidations,
    LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakes,
};

#[derive(Clone, Debug)]
pub(crate) struct Store(Arc<dyn Backend>);

impl Store {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        Store(backend)
    }

    /// The backend itself, for calls that affect no claim. Panics in its methods are not caught.
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.0.clone()
    }

    pub(crate) fn profile(&self) -> &Profile {
        self.0.profile()
    }

    pub(crate) fn invalidations(&self, client: ClientId) -> Option<Invalidations> {
        let begun = catch_unwind(AssertUnwindSafe(|| self.0.clone().invalidations(client)));
        begun.unwrap_or(None)
    }

    pub(crate) fn acquire(&self, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        self.call(|backend| backend.acquire(claim, not_after))
    }

    pub(crate) fn watch(&self, claim: Arc<Claim>) -> Call<Wakes> {
        self.call(|backend| backend.watch(claim))
    }

    pub(crate) fn inspect(&self, query: Query) -> Call<Page<LockStatus>> {
        self.call(|backend| backend.inspect(query))
    }

    pub(crate) fn renew(&self, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        self.each(|backend| backend.renew(batch))
    }

    pub(crate) fn release(&self, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        self.each(|backend| backend.release(batch))
    }

    fn call<T>(&self, begin: impl FnOnce(Arc<dyn Backend>) -> Call<T>) -> Call<T> {
        let begun = catch_unwind(AssertUnwindSafe(|| begin(self.0.clone())));
        begun.unwrap_or_else(|_| Call::ready(Err(BackendError::panicked())))
    }

    fn each<T>(&self, begin: impl FnOnce(Arc<dyn Backend>) -> BatchCall<T>) -> BatchCall<T> {
        let begun = catch_unwind(AssertUnwindSafe(|| begin(self.0.clone())));
        begun.unwrap_or_else(|_| BatchCall::ready(Batch::new()))
    }
}

/// Waits for the next wake-up. Returns false when the subscription has ended. Without a subscription it never
/// returns.
pub(crate) async fn next_wake(wakes: &mut Option<Wakes>) -> bool {
    match wakes {
        Some(wakes) => poll_fn(|cx| Pin::new(&mut *wakes).poll_next(cx)).await.is_some(),
        None => pending().await,
    }
}
