//! The connections of one store: each serves one statement at a time, few are open, and idle ones are closed.
//!
//! A statement that is not answered in time closes its connection: the reply would belong to no one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tenure_backend::BackendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::dial::{Dial, Session as _, dial};
use super::error::{Failure, not_connected, unanswered};

/// The connections of one store.
pub(crate) struct Pool<D: Dial> {
    dialer: D,
    /// Index of the host that answered last.
    first: AtomicUsize,
    /// One permit for each connection that may be open.
    permits: Arc<Semaphore>,
    /// Connections at rest. The one that was used last is at the end, and is used next.
    idle: Mutex<Vec<(D::Session, Instant)>>,
    /// Something is held, so one connection stays open.
    keeps_one: AtomicBool,
    closes_idle: AtomicBool,
    closed: AtomicBool,
    /// Changes when a connection is opened after another has failed.
    replaced: watch::Sender<()>,
    failed: AtomicBool,
}

impl<D: Dial> Pool<D> {
    pub(crate) fn new(dialer: D) -> Arc<Self> {
        Arc::new(Pool {
            permits: Arc::new(Semaphore::new(dialer.config().connections)),
            dialer,
            first: AtomicUsize::new(0),
            idle: Mutex::default(),
            keeps_one: AtomicBool::new(false),
            closes_idle: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            replaced: watch::Sender::new(()),
            failed: AtomicBool::new(false),
        })
    }

    /// Changes when a connection was replaced: the server behind the new one may lack locks that were held.
    pub(crate) fn replacements(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// Sets whether one connection stays open, because something is held.
    pub(crate) fn keep_one(&self, keeps: bool) {
        self.keeps_one.store(keeps, Ordering::Relaxed);
    }

    /// Waits for a connection of one's own. It goes back to the pool with [`Lease::end`].
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Lease<D>, BackendError> {
        let permit = self.permits.clone().acquire_owned().await;
        Ok(Lease {
            session: self.session().await?,
            pool: self.clone(),
            _permit: permit.ok(),
        })
    }

    /// Limits the time of a statement, or of several.
    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.dialer.config().command_timeout;
        timeout(limit, work)
            .await
            .unwrap_or_else(|_| Err(unanswered(limit).into()))
    }

    async fn session(&self) -> Result<D::Session, BackendError> {
        loop {
            if self.closed.load(Ordering::Relaxed) {
                return Err(BackendError::closed());
            }
            let Some((session, _)) = self.idle.lock().pop() else {
                break;
            };
            if !session.is_closed() {
                return Ok(session);
            }
            self.failed.store(true, Ordering::Relaxed);
        }
        let config = self.dialer.config();
        let limit = config.connect_timeout;
        let opened = timeout(limit, dial(&self.dialer, &self.first)).await;
        let opened = opened.unwrap_or_else(|_| Err(not_connected(&config.address(), limit)))?;
        if self.failed.swap(false, Ordering::Relaxed) {
            self.replaced.send_replace(());
        }
        Ok(opened)
    }

    fn rest(self: &Arc<Self>, session: D::Session) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        self.idle.lock().push((session, Instant::now()));
        if !self.closes_idle.swap(true, Ordering::Relaxed) {
            tokio::spawn(close_idle(self.clone()));
        }
    }

    /// Closes all connections at rest. Those in use are closed when their statement ends.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.idle.lock().clear();
    }
}

/// A connection of the pool, for one caller. Dropping it closes the connection.
pub(crate) struct Lease<D: Dial> {
    pub(crate) session: D::Session,
    pool: Arc<Pool<D>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<D: Dial> Lease<D> {
    /// Gives the connection back after work with this result. Closes it if the server may not have answered, and then also
    /// those that are idle, because they lead to the same server.
    pub(crate) fn end<T>(self, worked: Result<T, Failure>) -> Result<T, Failure> {
        let is_answered = match &worked {
            Ok(_) | Err(Failure::Busy | Failure::Repeat) => true,
            Err(Failure::Error(error)) => !error.is_transient(),
        };
        if is_answered && !self.session.is_closed() {
            self.pool.rest(self.session);
        } else {
            self.pool.failed.store(true, Ordering::Relaxed);
            self.pool.idle.lock().clear();
        }
        worked
    }
}

/// Closes connections that were idle for long. Ends when none is left.
async fn close_idle<D: Dial>(pool: Arc<Pool<D>>) {
    let limit = pool.dialer.config().idle;
    let mut wake = Instant::now() + limit;
    loop {
        sleep_until(wake).await;
        let now = Instant::now();
        let mut idle = pool.idle.lock();
        let spared = usize::from(pool.keeps_one.load(Ordering::Relaxed));
        let old = idle.partition_point(|(_, since)| *since + limit <= now);
        let closes = old.min(idle.len().saturating_sub(spared));
        idle.drain(..closes);
        let Some((_, oldest)) = idle.first() else {
            // Under the lock, so that a connection that comes to rest now starts another task.
            pool.closes_idle.store(false, Ordering::Relaxed);
            return;
        };
        wake = (*oldest + limit).max(now + limit / 10);
    }
}
