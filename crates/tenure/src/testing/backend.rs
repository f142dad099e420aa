//! One client's connection to the memory store of a test's `Lab`. A test can cut the connection, or take claims away.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClaimId, ClientId, Clock, Effect,
    Fault, Finding, Instant, Invalidations, LockStatus, Loss, Page, Profile, Query, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Wakes,
};

use crate::connect::Memory;

/// The faults that the lab has injected for all its clients.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// True while the store is unavailable to all clients.
    pub(crate) down: AtomicBool,
    /// Claims that the lab took from their holders, and the loss that their renewals report.
    pub(crate) losses: Mutex<HashMap<ClaimId, Loss>>,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) store: Arc<Memory>,
    pub(crate) fate: Arc<Fate>,
    /// True while this client is cut off from the store.
    pub(crate) cut: AtomicBool,
}

impl Link {
    fn reach(&self) -> Result<(), BackendError> {
        if self.cut.load(Ordering::SeqCst) || self.fate.down.load(Ordering::SeqCst) {
            let message = "the lab keeps this client from its store";
            return Err(BackendError::new(Fault::Unavailable, Effect::None, message));
        }
        Ok(())
    }

    /// Calls the store, or fails if this client cannot reach it.
    fn call<T: Send + 'static>(&self, call: impl FnOnce(Arc<Memory>) -> Call<T>) -> Call<T> {
        match self.reach() {
            Ok(()) => call(self.store.clone()),
            Err(error) => Call::ready(Err(error)),
        }
    }

    /// Renews claims in the store. For claims that the lab took away, replaces the store's answer by the loss that
    /// the lab chose.
    async fn renew_each(&self, batch: Batch<RenewRequest>) -> Batch<RenewReply> {
        let ids: Vec<ClaimId> = batch.iter().map(|renewal| renewal.claim.id).collect();
        let mut answers = self.store.clone().renew(batch).await;
        let losses = self.fate.losses.lock();
        for (id, answer) in ids.iter().zip(answers.iter_mut()) {
            if let Some(loss) = losses.get(id) {
                *answer = RenewReply::Gone(loss.clone());
            }
        }
        answers
    }
}

impl Backend for Link {
    fn profile(&self) -> &Profile {
        self.store.profile()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.store.clock()
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        self.call(|store| store.acquire(claim, not_after))
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        match self.reach() {
            Ok(()) => BatchCall::new(async move { self.renew_each(batch).await }),
            Err(error) => {
                BatchCall::ready(batch.iter().map(|_| RenewReply::Unknown(error.clone())).collect())
            }
        }
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        match self.reach() {
            Ok(()) => self.store.clone().release(batch),
            Err(error) => BatchCall::ready(
                batch
                    .iter()
                    .map(|_| ReleaseReply::Unknown(error.clone()))
                    .collect(),
            ),
        }
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        self.call(|store| store.watch(claim))
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        self.store.clone().invalidations(client)
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.call(|store| store.inspect(query))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.call(|store| store.examine())
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.store.clone().close()
    }
}
