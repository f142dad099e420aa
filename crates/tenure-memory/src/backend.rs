//! The [`Backend`] of one client, which checks each request and passes it to the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Cause, Claim, ClientId, Clock, Effect,
    Fault, Finding, Instant, Invalidations, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest, SystemClock, Wakes,
};

use crate::profile::{LIMITS, PROFILE};
use crate::store::MemoryStore;
use crate::tokens::Tokens;

/// One client's connection to a [`MemoryStore`].
///
/// Every method does its work before it returns, and its future is ready at the first poll. Acquiring and releasing a
/// key that no other claim wants allocates nothing.
///
/// # Examples
/// ```
/// use tenure_backend::{Backend, Fencing};
/// use tenure_memory::Memory;
///
/// let memory = Memory::new();
/// assert_eq!(memory.profile().fencing, Fencing::Process);
/// ```
// On cache lines of its own, without the count of the references to it: each request changes that count.
#[derive(Debug)]
#[repr(align(128))]
pub struct Memory {
    store: MemoryStore,
    clock: Arc<dyn Clock>,
    closed: AtomicBool,
}

impl Memory {
    /// Creates a new store on the system's clock, and connects to it.
    pub fn new() -> Arc<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        MemoryStore::new(Arc::clone(&clock)).client(clock)
    }

    fn check_open(&self) -> Result<(), BackendError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(BackendError::closed());
        }
        Ok(())
    }

    /// Calls `one` for each element of a batch, or `refused` if the batch is too large or the client is closed.
    fn for_each<T, A>(
        &self,
        batch: Batch<T>,
        one: impl Fn(T) -> A,
        refused: impl Fn(BackendError) -> A,
    ) -> BatchCall<A> {
        let checked = self.check_open().and_then(|()| LIMITS.check_batch(batch.len()));
        BatchCall::ready(match checked {
            Ok(()) => batch.into_iter().map(one).collect(),
            Err(error) => batch.iter().map(|_| refused(error.clone())).collect(),
        })
    }
}

impl MemoryStore {
    /// Connects a client that reads `clock`. Closing one client's connection does not close the others.
    pub fn client(&self, clock: Arc<dyn Clock>) -> Arc<Memory> {
        Arc::new(Memory {
            store: self.clone(),
            clock,
            closed: AtomicBool::new(false),
        })
    }
}

impl Backend for Memory {
    fn profile(&self) -> &Profile {
        &PROFILE
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        let checked = self.check_open().and_then(|()| claim.check(&LIMITS));
        Call::ready(checked.and_then(|()| {
            self.store.act(&self.clock, |table, at, signals| {
                table.acquire(claim, not_after, at, signals)
            })
        }))
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let renew = |request: RenewRequest| match check_renew(&request) {
            Ok(()) => self.store.act(&self.clock, |table, at, signals| {
                table.renew(&request, at, signals)
            }),
            Err(error) => RenewReply::Unknown(error),
        };
        self.for_each(batch, renew, RenewReply::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let release = |request: ReleaseRequest| match check_release(&request) {
            Ok(()) => {
                let evicts = matches!(request.cause, Cause::Evicted { .. });
                let key = evicts.then(|| request.target.key().clone());
                let reply = self.store.act(&self.clock, |table, at, signals| {
                    table.release(request, at, signals)
                });
                if let (Some(key), ReleaseReply::Done { freed, .. }) = (key, &reply) {
                    self.store.report_evictions(&key, freed);
                }
                reply
            }
            Err(error) => ReleaseReply::Unknown(error),
        };
        self.for_each(batch, release, ReleaseReply::Unknown)
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        Call::ready(self.check_open().map(|()| self.store.watch(claim)))
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        Some(self.store.invalidations(client))
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::ready(self.check_open().map(|()| match query {
            Query::Key(key) => self.store.inspect_key(&key),
            Query::Prefix { prefix, after, limit } => {
                self.store.inspect_prefix(&prefix, after.as_ref(), limit)
            }
        }))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::ready(self.check_open().map(|()| {
            let what = "the locks are in this process's memory";
            let consequence = "another process that uses the same keys is not excluded";
            vec![Finding::note(what, consequence)]
        }))
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.closed.store(true, Ordering::Release);
        Call::ready(Ok(()))
    }
}

fn check_renew(request: &RenewRequest) -> Result<(), BackendError> {
    let highest = Tokens::HIGHEST_RAISE;
    if request.raise.is_some_and(|range| range.last() > highest) {
        let message = format!("tokens can be raised to at most {highest}");
        return Err(BackendError::new(Fault::Limit, Effect::None, message));
    }
    request.check(&PROFILE)
}

fn check_release(request: &ReleaseRequest) -> Result<(), BackendError> {
    let successor = request.checked_successor()?;
    successor.map_or(Ok(()), |successor| successor.check(&LIMITS))
}
