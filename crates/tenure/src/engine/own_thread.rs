//! A thread of the client's own, for programs whose tasks block their runtime. It runs the watchdog. If the store was
//! opened on it, it also runs the store's connections, and the tasks that calls to the store start.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;

use tenure_backend::{
    AcquireReply, Backend, Batch, BatchCall, Call, Claim, ClientId, Clock, Finding, Instant, Invalidations,
    LockStatus, Page, Profile, Query, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakes,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::error::Error;

const NO_THREAD: Error = Error::Closed("the system gave no thread for this client");
const RUNTIME_ENDED: Error = Error::Closed("the client's own thread ended while its store was opened");

/// A runtime on its own thread. The thread ends with the work given to [`run`](Self::run), or when this value is
/// dropped before `run`.
pub(crate) struct OwnThread {
    runtime: Handle,
    work: oneshot::Sender<Work>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl OwnThread {
    pub(crate) fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|_| NO_THREAD)?;
        let handle = runtime.handle().clone();
        let (work, told) = oneshot::channel::<Work>();
        let until_done = async move {
            if let Ok(work) = told.await {
                work.await;
            }
        };
        let thread = std::thread::Builder::new().name("tenure-watchdog".to_owned());
        thread
            .spawn(move || runtime.block_on(until_done))
            .map_err(|_| NO_THREAD)?;
        Ok(OwnThread {
            runtime: handle,
            work,
        })
    }

    /// Opens a store on this thread. Calls to the store may be polled anywhere; the tasks that they start run on this
    /// thread.
    pub(crate) async fn open(
        &self,
        opening: impl Future<Output = Result<Arc<dyn Backend>, Error>> + Send + 'static,
    ) -> Result<Arc<dyn Backend>, Error> {
        // If this future is dropped, the caller also drops `self`, which ends the thread and the task.
        let opened = self.runtime.spawn(opening).await;
        Ok(Arc::new(Anchored {
            store: opened.map_err(ended)??,
            runtime: self.runtime.clone(),
        }))
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Runs `work` on the thread, which ends when `work` does.
    pub(crate) fn run(self, work: impl Future<Output = ()> + Send + 'static) {
        // Cannot fail: the thread waits for this work.
        let _ = self.work.send(Box::pin(work));
    }
}

/// The error if the task that opened a store ended without a result.
fn ended(error: JoinError) -> Error {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => RUNTIME_ENDED,
    }
}

/// A store whose calls are polled in the context of the runtime that opened it. A call may replace a connection, and
/// the caller's runtime, which may block or end, must not drive the new connection.
#[derive(Debug)]
struct Anchored {
    store: Arc<dyn Backend>,
    runtime: Handle,
}

impl Anchored {
    fn poll<F>(&self, mut call: F) -> impl Future<Output = F::Output> + use<F>
    where
        F: Future + Unpin,
    {
        let runtime = self.runtime.clone();
        poll_fn(move |cx| {
            let _entered = runtime.enter();
            Pin::new(&mut call).poll(cx)
        })
    }
}

impl Backend for Anchored {
    fn profile(&self) -> &Profile {
        self.store.profile()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.store.clock()
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, not_after: Instant) -> Call<AcquireReply> {
        Call::new(self.poll(self.store.clone().acquire(claim, not_after)))
    }

    fn renew(self: Arc<Self>, batch: Batch<RenewRequest>) -> BatchCall<RenewReply> {
        BatchCall::new(self.poll(self.store.clone().renew(batch)))
    }

    fn release(self: Arc<Self>, batch: Batch<ReleaseRequest>) -> BatchCall<ReleaseReply> {
        BatchCall::new(self.poll(self.store.clone().release(batch)))
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        Call::new(self.poll(self.store.clone().watch(claim)))
    }

    fn invalidations(self: Arc<Self>, client: ClientId) -> Option<Invalidations> {
        self.store.clone().invalidations(client)
    }

    fn inspect(self: Arc<Self>, query: Query) -> Call<Page<LockStatus>> {
        Call::new(self.poll(self.store.clone().inspect(query)))
    }

    fn examine(self: Arc<Self>) -> Call<Vec<Finding>> {
        Call::new(self.poll(self.store.clone().examine()))
    }

    fn close(self: Arc<Self>) -> Call<()> {
        Call::new(self.poll(self.store.clone().close()))
    }
}
