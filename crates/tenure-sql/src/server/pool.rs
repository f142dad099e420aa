//! The connections of one store: each serves one statement at a time, few are open, and idle ones are closed.
//!
//! A statement that is not answered in time closes its connection: the reply would belong to no one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tenure_backend::BackendError;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::config::Config;
use super::dial::{Session, dial};
use super::error::{Failure, not_connected, unanswered};

/// Which requests get a connection first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Renewals and releases: if they wait for long, a lock is lost, or stays held.
    High,
    /// Acquires, listings and sweeps. They leave one connection to the others, unless there is only one.
    Low,
}

/// The right to use one connection.
pub(crate) struct Permit<'a> {
    /// Number of attempts to connect that had ended when the caller began to wait for this permit.
    dials_before: u64,
    _of_all: SemaphorePermit<'a>,
    _of_low: Option<SemaphorePermit<'a>>,
}

/// The attempts to connect that have ended.
#[derive(Default)]
struct Dials {
    count: u64,
    /// Error of the last one, if it is transient.
    error: Option<BackendError>,
}

impl Dials {
    /// Counts an attempt that has ended.
    fn ended(&mut self, error: Option<&BackendError>) {
        self.count += 1;
        self.error = error.filter(|error| error.is_transient()).cloned();
    }
}

/// The connections of one store.
pub(crate) struct Pool<S: Session> {
    pub(crate) config: Config,
    tls: S::Tls,
    /// Index of the place that answered last.
    first: AtomicUsize,
    /// One permit for each connection that may be open. Closed with the store.
    permits: Semaphore,
    /// One permit less than `permits`, but at least one. A request of low priority takes one of these first, so that only a few
    /// such requests stand in the queue for `permits` before a renewal.
    low_permits: Semaphore,
    dials: Mutex<Dials>,
    /// Connections at rest. The one that was used last is at the end, and is used next.
    idle: Mutex<Vec<(S, Instant)>>,
    /// Something is held, so one connection stays open.
    keeps_one: AtomicBool,
    closes_idle: AtomicBool,
    /// Changes when a connection is opened after another has failed: the server behind it may lack locks that were held.
    pub(crate) replaced: watch::Sender<()>,
    failed: AtomicBool,
}

impl<S: Session> Pool<S> {
    /// Reads the certificates if TLS may be used; fails if they are invalid. Does not connect.
    pub(crate) fn new(config: Config) -> Result<Arc<Self>, BackendError> {
        Ok(Arc::new(Pool {
            tls: S::tls(&config)?,
            permits: Semaphore::new(config.connections),
            low_permits: Semaphore::new((config.connections - 1).max(1)),
            dials: Mutex::default(),
            config,
            first: AtomicUsize::new(0),
            idle: Mutex::default(),
            keeps_one: AtomicBool::new(false),
            closes_idle: AtomicBool::new(false),
            replaced: watch::Sender::new(()),
            failed: AtomicBool::new(false),
        }))
    }

    /// Sets whether one connection stays open, because something is held.
    pub(crate) fn keep_one(&self, keeps: bool) {
        self.keeps_one.store(keeps, Ordering::Relaxed);
    }

    /// Waits until a connection may be used.
    pub(crate) async fn permit(&self, priority: Priority) -> Result<Permit<'_>, BackendError> {
        let dials_before = self.dials.lock().count;
        let of_low = match priority {
            Priority::High => None,
            Priority::Low => Some(acquire(&self.low_permits).await?),
        };
        Ok(Permit {
            dials_before,
            _of_all: acquire(&self.permits).await?,
            _of_low: of_low,
        })
    }

    /// Fails with the error of the last attempt to connect, if that attempt ended while the caller waited for its permit, and the
    /// error is transient.
    pub(crate) fn check_dials(&self, permit: &Permit<'_>) -> Result<(), BackendError> {
        let dials = self.dials.lock();
        match &dials.error {
            Some(error) if dials.count > permit.dials_before => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits for a permit, and runs one statement, or several, as [`with_permit`](Self::with_permit) does.
    pub(crate) async fn with<T>(
        self: &Arc<Self>,
        priority: Priority,
        work: impl AsyncFnOnce(&mut S) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let permit = self.permit(priority).await?;
        self.with_permit(permit, work).await
    }

    /// Runs one statement, or several, on a connection that is used for nothing else meanwhile. Connects if none is open, and
    /// limits the time of the work.
    ///
    /// Closes the connection if the server may not have answered, and then also those that are idle, because they lead to
    /// the same server.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn with_permit<T>(
        self: &Arc<Self>,
        permit: Permit<'_>,
        work: impl AsyncFnOnce(&mut S) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut session = self.session(&permit).await?;
        let limit = self.config.command_timeout;
        let worked = timeout(limit, work(&mut session)).await;
        let worked = worked.unwrap_or_else(|_| Err(unanswered(limit).into()));
        let is_answered = match &worked {
            Ok(_) | Err(Failure::Busy | Failure::Repeat) => true,
            Err(Failure::Error(error)) => !error.is_transient(),
        };
        if is_answered && !session.is_closed() {
            self.rest(session);
        } else {
            self.failed.store(true, Ordering::Relaxed);
            self.idle.lock().clear();
        }
        worked
    }

    /// Takes a connection at rest, or connects. Callers that waited for their permit while another caller's attempt failed share
    /// its error. Otherwise they would wait for the same time-out one after the other.
    async fn session(&self, permit: &Permit<'_>) -> Result<S, BackendError> {
        loop {
            let Some((mut session, _)) = self.idle.lock().pop() else {
                break;
            };
            if !session.is_closed() {
                return Ok(session);
            }
            self.failed.store(true, Ordering::Relaxed);
        }
        self.check_dials(permit)?;
        let limit = self.config.connect_timeout;
        let opened = timeout(limit, dial(&self.config, &self.tls, &self.first)).await;
        let opened = opened.unwrap_or_else(|_| Err(not_connected(self.config.address(), limit)));
        self.dials.lock().ended(opened.as_ref().err());
        let opened = opened?;
        if self.failed.swap(false, Ordering::Relaxed) {
            self.replaced.send_replace(());
        }
        Ok(opened)
    }

    fn rest(self: &Arc<Self>, session: S) {
        if self.permits.is_closed() {
            return;
        }
        self.idle.lock().push((session, Instant::now()));
        if !self.closes_idle.swap(true, Ordering::Relaxed) {
            tokio::spawn(close_idle(self.clone()));
        }
    }

    /// Closes all connections at rest. Those in use are closed when their statement ends.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.low_permits.close();
        self.idle.lock().clear();
    }
}

async fn acquire(permits: &Semaphore) -> Result<SemaphorePermit<'_>, BackendError> {
    permits.acquire().await.map_err(|_| BackendError::closed())
}

/// Closes connections that were idle for long. Ends when none is left.
async fn close_idle<S: Session>(pool: Arc<Pool<S>>) {
    let limit = pool.config.idle;
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
