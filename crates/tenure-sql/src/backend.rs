//! The contract over a dialect: each verb becomes a request, and the future of its answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    Backend, BackendError, Batch, Call, Claim, Clock, Departure, Each, Effect, Fault, Finding, Instant,
    LockStatus, Page, Profile, Query, Released, Renewal, Renewed, Standing, Wakes,
};
use tokio::sync::oneshot::error::TryRecvError;

use crate::request::{Ask, Request, Write};

/// A database that serves requests, each exactly once, in an order of its own.
pub(crate) trait Dialect: fmt::Debug + Send + Sync + 'static {
    fn profile(&self) -> &'static Profile;

    fn clock(&self) -> &Arc<dyn Clock>;

    /// Takes the request on; never blocks. It is answered through itself, also if it fails.
    fn submit(&self, request: Request);

    /// For how long a caller looks for its answer before it sleeps: being woken may take longer than the answer does.
    fn patience(&self) -> Duration;
}

/// Locks in an SQL database.
///
/// All rules of [`Backend`] hold, for all modes and both orders. Opened by its dialect, such as
/// [`sqlite::open`](crate::sqlite::open).
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
pub struct SqlStore {
    dialect: Box<dyn Dialect>,
}

impl SqlStore {
    pub(crate) fn new(dialect: impl Dialect) -> Arc<Self> {
        Arc::new(SqlStore {
            dialect: Box::new(dialect),
        })
    }

    /// Asks, and waits for the answer: at first awake, offering the thread to others at every look. There is none if the
    /// database's side goes away.
    async fn ask<Q, A>(&self, question: Q, wrap: impl FnOnce(Ask<Q, A>) -> Request) -> Option<A> {
        let (ask, mut answer) = Ask::new(question);
        let patience = self.dialect.patience();
        self.dialect.submit(wrap(ask));
        if patience > Duration::ZERO {
            let asked = std::time::Instant::now();
            while asked.elapsed() < patience {
                match answer.try_recv() {
                    Ok(answer) => return Some(answer),
                    Err(TryRecvError::Closed) => return None,
                    Err(TryRecvError::Empty) => tokio::task::yield_now().await,
                }
            }
        }
        answer.await.ok()
    }

    /// A call that asks when it is first polled.
    fn call<Q, A>(
        self: Arc<Self>,
        question: Q,
        wrap: fn(Ask<Q, Result<A, BackendError>>) -> Request,
    ) -> Call<A>
    where
        Q: Send + 'static,
        A: Send + 'static,
    {
        Call::new(async move {
            let answer = self.ask(question, wrap).await;
            answer.unwrap_or_else(|| Err(gone()))
        })
    }

    /// A batch that is asked for when it is first polled.
    fn each<Q, A>(
        self: Arc<Self>,
        batch: Batch<Q>,
        wrap: fn(Ask<Batch<Q>, Batch<A>>) -> Request,
        unknown: fn(BackendError) -> A,
    ) -> Each<A>
    where
        Q: Send + 'static,
        A: Send + 'static,
    {
        if let Err(refusal) = self.profile().limits.check_batch(batch.len()) {
            return Each::ready(batch.iter().map(|_| unknown(refusal.clone())).collect());
        }
        Each::new(async move {
            let count = batch.len();
            let answer = self.ask(batch, wrap).await;
            answer.unwrap_or_else(|| (0..count).map(|_| unknown(gone())).collect())
        })
    }
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlStore").field(&self.dialect).finish()
    }
}

impl Backend for SqlStore {
    fn profile(&self) -> &Profile {
        self.dialect.profile()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        self.dialect.clock()
    }

    fn acquire(self: Arc<Self>, claim: Arc<Claim>, place_by: Instant) -> Call<Standing> {
        self.call((claim, place_by), |ask| Request::Write(Write::Acquire(ask)))
    }

    fn renew(self: Arc<Self>, batch: Batch<Renewal>) -> Each<Renewed> {
        let wrap = |ask| Request::Write(Write::Renew(ask));
        self.each(batch, wrap, Renewed::Unknown)
    }

    fn release(self: Arc<Self>, batch: Batch<Departure>) -> Each<Released> {
        let wrap = |ask| Request::Write(Write::Release(ask));
        self.each(batch, wrap, Released::Unknown)
    }

    fn watch(self: Arc<Self>, claim: Arc<Claim>) -> Call<Wakes> {
        self.call(claim, |ask| Request::Write(Write::Watch(ask)))
    }

    fn reconnects(&self) -> Option<Wakes> {
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

/// The database's side went away without an answer: it has a bug.
fn gone() -> BackendError {
    BackendError::new(
        Fault::Closed,
        Effect::Unknown,
        "the thread that serves the database ended without an answer: connect again, and please report it",
    )
}
