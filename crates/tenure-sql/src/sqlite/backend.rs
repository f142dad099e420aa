//! [`Backend`] for a lock file: each call sends a request to the file's thread and waits for the reply.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, BatchCall, Call, Claim, ClientId, Clock, Effect, Fault,
    Finding, Instant, Invalidations, LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest, Wakes,
};
use tokio::sync::oneshot::error::TryRecvError;

use super::mailbox::Mailbox;
use super::profile::{LIMITS, SQLITE};
use super::request::{Pending, Request, Write};

/// Locks in a SQLite file.
///
/// Keeps all rules of [`Backend`], for all modes, fair and unfair. Open a store with
/// [`open`](super::open()). Each store has a thread that serves its file and ends when the store is
/// dropped.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use tenure_backend::{Backend, SystemClock};
/// use tenure_sql::sqlite;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("locks.db");
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let store = sqlite::open(Some(path), Arc::new(SystemClock)).await.unwrap();
/// assert_eq!(store.profile().store, "sqlite");
/// # });
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) clock: Arc<dyn Clock>,
    /// Id of the process that opened the store. A child made by `fork` inherits the store, but not its thread.
    pub(super) process: u32,
}

impl SqliteStore {
    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    fn submit(&self, request: Request) {
        if self.is_of_this_process() {
            self.mailbox.post(request);
        } else {
            request.fail(&wrong_process());
        }
    }

    /// Sends a request to the file's thread and waits for the reply. If no other caller competes and replies come
    /// quickly, polls for the reply before it sleeps, and yields to other tasks between polls. Returns `None` if the
    /// thread ended without a reply.
    async fn send<Q, A>(&self, request: Q, wrap: impl FnOnce(Pending<Q, A>) -> Request) -> Option<A> {
        let (pending, mut answer) = Pending::new(request);
        let caller_spin = self.mailbox.caller_spin();
        self.submit(wrap(pending));
        if caller_spin > Duration::ZERO {
            let sent = std::time::Instant::now();
            while sent.elapsed() < caller_spin {
                match answer.try_recv() {
                    Ok(answer) => return Some(answer),
                    Err(TryRecvError::Closed) => return None,
                    Err(TryRecvError::Empty) => tokio::task::yield_now().await,
                }
            }
        }
        answer.await.ok()
    }

    /// Makes a call that sends its request when it is first polled.
    fn call<Q, A>(
        self: Arc<Self>,
        request: Q,
        wrap: fn(Pending<Q, Result<A, BackendError>>) -> Request,
    ) -> Call<A>
    where
        Q: Send + 'static,
        A: Send + 'static,
    {
        Call::new(async move {
            let answer = self.send(request, wrap).await;
            answer.unwrap_or_else(|| Err(thread_ended()))
        })
    }

    /// Makes a call for a batch, which sends one request when it is first polled.
    fn batch_call<Q, A>(
        self: Arc<Self>,
        batch: Batch<Q>,
        wrap: fn(Pending<Batch<Q>, Batch<A>>) -> Request,
        unknown: fn(BackendError) -> A,
    ) -> BatchCall<A>
    where
        Q: Send + 'static,
        A: Send + 'static,
    {
        if let Err(refusal) = LIMITS.check_batch(batch.len()) {
            return BatchCall::ready(batch.iter().map(|_| unknown(refusal.clone())).collect());
        }
        BatchCall::new(async move {
            let count = batch.len();
            let answer = self.send(batch, wrap).await;
            answer.unwrap_or_else(|| (0..count).map(|_| unknown(thread_ended())).collect())
        })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // A child made by `fork` must not close the store of its parent.
        if self.is_of_this_process() {
            self.mailbox.close();
        }
    }
}

impl Backend for SqliteStore {
    fn profile(&self) -> &Profile {
        &SQLITE
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        self.call((claim, not_after), |pending| {
            Request::Write(Write::Acquire(pending))
        })
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        let wrap = |pending| Request::Write(Write::Renew(pending));
        self.batch_call(batch, wrap, RenewReply::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        let wrap = |pending| Request::Write(Write::Release(pending));
        self.batch_call(batch, wrap, ReleaseReply::Unknown)
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        self.call(claim, |pending| Request::Write(Write::Watch(pending)))
    }

    fn invalidations(self: Arc<Self>, _: ClientId) -> Option<Invalidations> {
        None
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        self.call(query, Request::Inspect)
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        self.call((), Request::Examine)
    }

    fn close(self: Arc<Self>) -> Call<()> {
        self.call((), Request::Close)
    }
}

/// Error of a call whose thread ended without a reply: a bug.
fn thread_ended() -> BackendError {
    BackendError::new(
        Fault::Closed,
        Effect::Unknown,
        "the thread that serves the database ended without an answer: connect again, and please report it",
    )
}

fn wrong_process() -> BackendError {
    BackendError::new(
        Fault::Closed,
        Effect::None,
        "this connection to the store belongs to the parent process: connect again after a fork",
    )
}
