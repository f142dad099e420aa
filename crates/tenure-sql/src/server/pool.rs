//! The connections of one store: each serves one statement at a time, few are open, and idle ones are closed.
//!
//! A statement that is not answered in time closes its connection: the reply would belong to no one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tenure_backend::BackendError;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::config::Config;
use super::dial::{Session, dial};
use super::error::{Failure, not_connected, unanswered};

/// The connections of one store.
pub(crate) struct Pool<S: Session> {
    pub(crate) config: Config,
    tls: S::Tls,
    /// Index of the place that answered last.
    first: AtomicUsize,
    /// One permit for each connection that may be open. Closed with the store.
    permits: Semaphore,
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

    /// Runs one statement, or several, on a connection that is used for nothing else meanwhile. Waits for a connection, and
    /// limits the time of the work on it.
    ///
    /// Closes the connection if the server may not have answered, and then also those that are idle, because they lead to
    /// the same server.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) async fn with<T>(
        self: &Arc<Self>,
        work: impl AsyncFnOnce(&mut S) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|_| BackendError::closed())?;
        let mut session = self.session().await?;
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

    async fn session(&self) -> Result<S, BackendError> {
        loop {
            let Some((mut session, _)) = self.idle.lock().pop() else {
                break;
            };
            if !session.is_closed() {
                return Ok(session);
            }
            self.failed.store(true, Ordering::Relaxed);
        }
        let limit = self.config.connect_timeout;
        let opened = timeout(limit, dial(&self.config, &self.tls, &self.first)).await;
        let opened = opened.unwrap_or_else(|_| Err(not_connected(self.config.address(), limit)))?;
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
        self.idle.lock().clear();
    }
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
