//! Choosing a session for each claim, or opening one, and watching the nodes of sessions.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_backend::{BackendError, Claim, Invalidation, Loss};
use tenure_contenders::{Contenders as _, SharedAttempt};
use tokio::time::{sleep, timeout};

use super::placed::Spot;
use super::sessions::{Session, marks};
use super::store::Locks;
use crate::client::{Code, Event, Mode, code, is_session_end};

/// The most sessions of one store.
const MAX_SESSIONS: usize = 4;

/// The length of the session that is opened first: the lease that claims usually have.
pub(super) const USUAL_LEASE: Duration = Duration::from_secs(30);

/// The pause after an attempt to open a session.
const OPEN_AGAIN: Duration = Duration::from_millis(100);

/// The pause before a session node is read again after an error.
const READ_AGAIN: Duration = Duration::from_millis(100);

impl Locks {
    /// Chooses a session for a claim, and reserves a spot in it.
    pub(super) async fn reserve(self: &Arc<Self>, claim: &Claim) -> Result<Spot, BackendError> {
        let lease = self.profile.limits.lease(claim.lease);
        let reserve = |session: &Arc<Session>| {
            let spot = Spot {
                session: session.clone(),
                folder: self.names.folder(&claim.at.key, claim.mode.kind()),
            };
            self.table.reserve(claim.at.id, &spot);
            spot
        };
        // With the pool locked, so that no other call replaces the session as unused.
        let open = fresh(&self.sessions.pool.lock())
            .find(|session| session.asked == lease)
            .map(reserve);
        if let Some(spot) = open {
            return Ok(spot);
        }
        let attempt = self.sessions.opening.begin();
        let _choosing = self.sessions.choosing.lock().await;
        Ok(reserve(&self.session(lease, &attempt).await?))
    }

    /// A session for requests that belong to no claim.
    pub(super) async fn any_session(self: &Arc<Self>) -> Result<Arc<Session>, BackendError> {
        let open = fresh(&self.sessions.pool.lock()).next().cloned();
        if let Some(session) = open {
            return Ok(session);
        }
        let attempt = self.sessions.opening.begin();
        let _choosing = self.sessions.choosing.lock().await;
        let lease = self.profile.limits.lease(USUAL_LEASE);
        self.session(lease, &attempt).await
    }

    /// Chooses a session for this length of lease, or makes the attempt to open one.
    async fn session(
        self: &Arc<Self>,
        lease: Duration,
        attempt: &SharedAttempt<'_>,
    ) -> Result<Arc<Session>, BackendError> {
        if let Some(session) = self.choose(lease) {
            return Ok(session);
        }
        // One of this length that is not fresh. Its requests wait for the next connection.
        let last_resort = |error: &BackendError| {
            let is_usable = |session: &&Arc<Session>| session.is_alive() && session.asked == lease;
            let found = self.sessions.pool.lock().iter().find(is_usable).cloned();
            found.filter(|_| error.is_transient())
        };
        let open = async {
            let opened = Session::open(self.config.clone(), &self.names, self.clock.clone(), lease).await;
            if opened.as_ref().is_err_and(|error| last_resort(error).is_none()) {
                // sleep: servers without a leader refuse at once, and callers try again at once.
                sleep(OPEN_AGAIN).await;
            }
            opened
        };
        let session = match attempt.make(open).await {
            Ok(session) => Arc::new(session),
            Err(error) => return last_resort(&error).ok_or(error),
        };
        // `Sessions::close` waits for this, after the table was closed.
        let tasks = self.sessions.tasks.lock();
        if self.table.is_closed() {
            return Err(BackendError::closed());
        }
        self.sessions.pool.lock().push(session.clone());
        drop(tasks);
        self.spawn(listen(Arc::downgrade(self), session.clone()));
        Ok(session)
    }

    /// Runs a task until the store is closed. The task may keep a session alive.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.sessions.tasks.lock();
        // Forgets those that have ended.
        while tasks.try_join_next().is_some() {}
        if !self.table.is_closed() {
            tasks.spawn(task);
        }
    }

    /// Returns the session that was opened for this length of lease, or `None` to open one. With the most sessions open, takes
    /// the next longer one, replaces one that no claim uses, or takes the longest.
    fn choose(&self, lease: Duration) -> Option<Arc<Session>> {
        let mut pool = self.sessions.pool.lock();
        pool.retain(|session| session.is_alive());
        if let Some(session) = fresh(&pool).find(|session| session.asked == lease) {
            return Some(session.clone());
        }
        if pool.len() < MAX_SESSIONS {
            return None;
        }
        let longer = fresh(&pool).filter(|session| session.asked > lease);
        if let Some(session) = longer.min_by_key(|session| session.asked) {
            return Some(session.clone());
        }
        let locks_of = |session: &Session| self.table.locks_at(|spot| spot.session.id == session.id);
        match pool.iter().position(|session| locks_of(session).is_empty()) {
            Some(unused) => {
                let unused = pool.swap_remove(unused);
                // If it fails, the session expires.
                tokio::spawn(async move { unused.client.close().await });
                None
            }
            None => pool.iter().max_by_key(|session| session.asked).cloned(),
        }
    }

    /// Creates the node of a session. Returns whether it is there.
    async fn create_session_node(&self, session: &Session) -> bool {
        let has_node = self.ensure(&session.client, &session.node, Mode::Ephemeral).await;
        let is_there = has_node.is_ok();
        session.has_node.send_replace(Some(has_node));
        is_there
    }

    /// Reports the claims that a session node names.
    fn report(&self, data: &[u8]) {
        for mark in marks(data) {
            if let Some(key) = self.table.lock_of(mark.id) {
                self.hints.push(Some(mark.id.client()), &Invalidation::Key(key));
            }
        }
    }

    /// Records the loss of all claims of a session.
    fn session_ended(&self, session: &Session) {
        let is_lost = |spot: &Spot| spot.session.id == session.id;
        let lost = (Loss::Session, session.timeout());
        self.table.end_all(is_lost, self.now(), &lost);
        self.hints.push(None, &Invalidation::All);
    }
}

/// The sessions that new claims may use.
fn fresh(pool: &[Arc<Session>]) -> impl Iterator<Item = &Arc<Session>> {
    pool.iter().filter(|session| session.is_fresh())
}

/// Creates a session's node and watches it, and keeps the session alive meanwhile. Reports the claims that the session node names, and ends
/// all claims when the session has ended. A claim may be placed before the session node is there, and is granted after that.
async fn listen(store: Weak<Locks>, session: Arc<Session>) {
    let mut keeping = pin!(session.keep());
    if let Some(locks) = store.upgrade() {
        locks.create_session_node(&session).await;
    }
    loop {
        let read = session.client.get_data_watched(&session.node).await;
        let Some(locks) = store.upgrade() else { return };
        match read {
            Ok((data, _, mut watch)) => {
                // The reply to its create may have been lost.
                session.has_node.send_replace(Some(Ok(())));
                locks.report(&data);
                drop(locks);
                // A check waits while the session node is not watched.
                let event = tokio::select! {
                    event = watch.fired() => event,
                    never = &mut keeping => match never {},
                };
                if let Some(locks) = store.upgrade().filter(|_| event == Event::Reconnected) {
                    locks.hints.push(None, &Invalidation::All);
                }
            }
            Err(error) if is_session_end(&error) => return locks.session_ended(&session),
            Err(error) => {
                let is_missing = code(&error) == Some(Code::NO_NODE);
                if !is_missing {
                    // The connection may have been replaced.
                    locks.hints.push(None, &Invalidation::All);
                }
                if !is_missing || !locks.create_session_node(&session).await {
                    drop(locks);
                    // If ZooKeeper has closed the session, the client learns it when it connects again, soon after this error. No
                    // event tells when ZooKeeper answers again.
                    let _ = timeout(READ_AGAIN, session.ended()).await;
                }
            }
        }
    }
}
