//! The [`Backend`] of a quorum: checks each request, and runs it in a task that asks the members.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Effect, Fairness,
    Fault, Fencing, Finding, Instant, Invalidations, LockStatus, Mode, Page, Profile, Query, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Wakes,
};
use tokio::runtime::Handle;

use crate::attempts::Attempts;
use crate::config::Config;
use crate::members::Members;
use crate::profile::{is_alike, profile};

/// A store that consists of several independent stores. A claim holds a key if a majority of them has granted it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::sync::Arc;
/// use tenure_backend::{Backend, Guarantee};
/// use tenure_memory::Memory;
/// use tenure_quorum::{Config, Quorum};
///
/// let members = (0..3).map(|_| Memory::new() as Arc<dyn Backend>).collect();
/// let quorum = Quorum::new(members, Config::default()).unwrap();
/// assert!(quorum.profile().offers(Guarantee::Fencing) && !quorum.profile().offers(Guarantee::Semaphore));
/// # }
/// ```
#[derive(Debug)]
pub struct Quorum {
    pub(crate) members: Members,
    pub(crate) profile: Profile,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) attempts: Attempts,
    is_closed: AtomicBool,
}

impl Quorum {
    /// Creates a quorum of these stores. Requests to them run on the current tokio runtime.
    ///
    /// # Errors
    /// [`Fault::Invalid`] without members, with members of different kinds or whose tokens cannot be raised, or outside of a
    /// tokio runtime.
    pub fn new(members: Vec<Arc<dyn Backend>>, config: Config) -> Result<Arc<Self>, BackendError> {
        let invalid = |message| BackendError::new(Fault::Invalid, Effect::None, message);
        let Some((first, others)) = members.split_first() else {
            return Err(invalid(
                "a quorum needs at least one server, and three to survive the loss of one",
            ));
        };
        let runtime =
            Handle::try_current().map_err(|_| invalid("a quorum must be opened inside a tokio runtime"))?;
        let others: Vec<&Profile> = others.iter().map(|member| member.profile()).collect();
        if !others.iter().all(|other| is_alike(first.profile(), other)) {
            return Err(invalid(
                "all servers of a quorum must be of one kind, with the same layout",
            ));
        }
        if first.profile().fencing != Fencing::None && !first.profile().raises_tokens {
            return Err(invalid(
                "the servers of a quorum must agree on a token, and those of this kind cannot raise theirs",
            ));
        }
        Ok(Arc::new(Quorum {
            profile: profile(
                first.profile(),
                others.into_iter(),
                config.max_lease,
                config.drift_ppm,
            ),
            clock: first.clock().clone(),
            attempts: Attempts::default(),
            is_closed: AtomicBool::new(false),
            members: Members::new(members, runtime, config.member_timeout),
        }))
    }

    /// Runs `work` in a task on the quorum's runtime, because `work` uses timers.
    fn run<T: Send + 'static>(
        self: Arc<Self>,
        work: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> Call<T> {
        Call::new(async move {
            self.check_open()?;
            let task = self.members.runtime.spawn(work);
            task.await.unwrap_or_else(|_| Err(runtime_gone()))
        })
    }

    /// Sends the elements of a batch that pass `check`. The reply to each of the others is `refused(error)`, with the
    /// error that `check` returned.
    fn run_batch<R, T, F>(
        self: Arc<Self>,
        batch: Batch<R>,
        check: impl Fn(&R) -> Result<(), BackendError> + Send + 'static,
        refused: impl Fn(BackendError) -> T + Send + 'static,
        send: impl FnOnce(Batch<R>) -> F + Send + 'static,
    ) -> BatchCall<T>
    where
        R: Send + 'static,
        T: Send + 'static,
        F: Future<Output = Batch<T>> + Send + 'static,
    {
        BatchCall::new(async move {
            let all = self
                .check_open()
                .and_then(|()| self.profile.limits.check_batch(batch.len()));
            let check = |request: &R| all.clone().and_then(|()| check(request));
            let checked: Vec<_> = batch.iter().map(check).collect();
            let sent = batch
                .into_iter()
                .zip(&checked)
                .filter(|(_, checked)| checked.is_ok());
            let sent: Batch<R> = sent.map(|(request, _)| request).collect();
            let replies = self.members.runtime.spawn(send(sent)).await;
            let mut replies = replies.unwrap_or_default().into_iter();
            let reply = |checked: Result<(), BackendError>| match checked {
                Ok(()) => replies.next().unwrap_or_else(|| refused(runtime_gone())),
                Err(error) => refused(error),
            };
            checked.into_iter().map(reply).collect()
        })
    }

    /// Refuses a claim that the quorum cannot serve, before it is sent.
    fn check_claim(&self, claim: &Claim) -> Result<(), BackendError> {
        claim.check(&self.profile.limits)?;
        if self.profile.serves(claim.mode, claim.fairness) {
            return Ok(());
        }
        let why = match (claim.mode, claim.fairness) {
            (Mode::Permits { .. }, _) => {
                "a quorum has no semaphores: its servers could grant too many permits together"
            }
            (_, Fairness::Fifo) => {
                "a quorum has no fair locks: its servers may queue claims in different orders"
            }
            _ => "the servers of this quorum do not serve this kind of lock",
        };
        Err(BackendError::unsupported(why))
    }

    fn check_open(&self) -> Result<(), BackendError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(BackendError::closed());
        }
        Ok(())
    }
}

fn runtime_gone() -> BackendError {
    let message = "the runtime on which this quorum was opened has ended: open another one";
    BackendError::new(Fault::Closed, Effect::Unknown, message)
}

impl Backend for Quorum {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        if let Err(error) = self.check_claim(&claim) {
            return Call::ready(Err(error));
        }
        let quorum = self.clone();
        self.run(async move { quorum.acquire_by_majority(claim, not_after).await })
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let quorum = self.clone();
        let check = move |request: &RenewRequest| request.check(&quorum.profile);
        let quorum = self.clone();
        let send = |batch| async move { quorum.renew_by_majority(batch).await };
        self.run_batch(batch, check, RenewReply::Unknown, send)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let limits = self.profile.limits;
        let check = move |request: &ReleaseRequest| {
            let successor = request.checked_successor()?;
            successor.map_or(Ok(()), |successor| successor.check(&limits))
        };
        let quorum = self.clone();
        let send = |batch| async move { quorum.release_by_majority(batch).await };
        self.run_batch(batch, check, ReleaseReply::Unknown, send)
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        let quorum = self.clone();
        self.run(async move { quorum.watch_all(claim).await })
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        self.all_invalidations(client)
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        let quorum = self.clone();
        self.run(async move { quorum.inspect_majority(query).await })
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        let quorum = self.clone();
        self.run(async move { quorum.examine_all().await })
    }

    fn close(self: Arc<Self>) -> Call<()> {
        Call::new(async move {
            self.is_closed.store(true, Ordering::Release);
            self.members.settle().await;
            let calls = self
                .members
                .list
                .iter()
                .map(|member| member.store.clone().close());
            join_all(calls).await.into_iter().collect()
        })
    }
}
