//! Sessions, which claims share: one for each length of lease, kept alive by checks, and with a bell that evictors ring.
//!
//! A check is a transaction that the leader answers. ZooKeeper counts a session's timeout at least from the time at which the
//! last check but two was sent: a server that follows the leader may answer pings, and later checks, whose sign of life has not
//! reached the leader. So two checks are never under way at once, and each is sent a tick after the reply to the one before.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{BackendError, ClaimId, Clock, Instant, Invalidation};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::store::Locks;
use super::table::Spot;
use super::value::Value;
use crate::client::{Client, Code, Event, Mode, Op, Outcome, SessionInfo, State, code, is_session_end};

/// The most sessions of one store.
const MAX_SESSIONS: usize = 4;

/// The length of the session that is opened first: the lease that claims usually have.
const USUAL_LEASE: Duration = Duration::from_secs(30);

/// A session lasts as many checks.
const CHECKS: u32 = 6;

/// The pause before the bell is read again after an error.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// The most evictions that a bell names. Older ones are dropped.
pub(super) const MAX_MARKS: usize = 16;

/// A session in ZooKeeper.
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) client: Client,
    pub(super) bell: String,
    /// The length of lease that it was opened for.
    asked: Duration,
    /// The length that ZooKeeper has granted.
    granted: Duration,
    info: watch::Receiver<SessionInfo>,
    /// When the last three confirmed checks were sent. The connect counts as the first one.
    checks: Mutex<VecDeque<Instant>>,
}

impl Session {
    /// Opens a session. Its bell is not there yet.
    async fn open(locks: &Locks, asked: Duration) -> Result<Session, BackendError> {
        let sent = locks.now();
        let client = Client::connect(locks.config.clone(), asked).await?;
        let info = client.info();
        let (id, granted) = {
            let info = info.borrow();
            (info.id, info.timeout)
        };
        Ok(Session {
            id,
            client,
            bell: locks.names.bell(id),
            asked,
            granted,
            info,
            checks: Mutex::new([sent].into()),
        })
    }

    /// Time without a sign of life after which ZooKeeper ends the session.
    pub(super) fn timeout(&self) -> Duration {
        self.granted.min(self.info.borrow().timeout)
    }

    /// The moment from which ZooKeeper counts the timeout, or an earlier one.
    pub(super) fn counts_from(&self) -> Instant {
        self.checks.lock().front().copied().unwrap_or(Instant::ORIGIN)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.info.borrow().state != State::Ended
    }

    /// Confirms that the session is alive. Returns false if its bell is missing.
    async fn check(&self, clock: &dyn Clock) -> Result<bool, BackendError> {
        let sent = clock.now();
        let bell = Op::Check(self.bell.clone(), None);
        let is_done = matches!(self.client.multi(&[bell]).await?, Outcome::Done { .. });
        if is_done {
            confirm(&mut self.checks.lock(), sent);
        }
        Ok(is_done)
    }

    /// Sends checks until the session ends, while `is_heard` says that the bell is watched.
    async fn keep(
        self: Arc<Self>,
        clock: Arc<dyn Clock>,
        tick: Duration,
        mut is_heard: watch::Receiver<bool>,
    ) {
        let mut pause = self.pause(tick);
        loop {
            // sleep: checks are sent at intervals.
            sleep(pause).await;
            if is_heard.wait_for(|is_heard| *is_heard).await.is_err() {
                return;
            }
            let sent = clock.now();
            pause = match self.check(&*clock).await {
                Ok(true) => self.pause(tick).saturating_sub(clock.now() - sent).max(tick),
                Err(error) if is_session_end(&error) => return,
                Ok(false) | Err(_) => tick,
            };
        }
    }

    fn pause(&self, tick: Duration) -> Duration {
        tick.max(self.timeout() / CHECKS)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:x})", self.id)
    }
}

/// Adds a confirmed check.
fn confirm(checks: &mut VecDeque<Instant>, sent: Instant) {
    checks.push_back(sent);
    if checks.len() > 3 {
        checks.pop_front();
    }
}

/// The sessions of a store, and their tasks.
#[derive(Default)]
pub(super) struct Sessions {
    pool: Mutex<Vec<Arc<Session>>>,
    /// Locked while a session is chosen or opened.
    choosing: tokio::sync::Mutex<()>,
    tasks: Mutex<JoinSet<()>>,
}

impl Sessions {
    /// Ends the tasks, and leaves the sessions to expire.
    pub(super) fn close(&self) {
        self.tasks.lock().abort_all();
        self.pool.lock().clear();
    }
}

impl Locks {
    /// Chooses a session for a claim with this lease, and reserves a spot in it.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        id: ClaimId,
        lease: Duration,
        folder: String,
    ) -> Result<Spot, BackendError> {
        let _choosing = self.sessions.choosing.lock().await;
        let session = self.session(lease).await?;
        let spot = Spot { session, folder };
        self.table.reserve(id, &spot);
        Ok(spot)
    }

    /// A session for requests that belong to no claim.
    pub(super) async fn any_session(self: &Arc<Self>) -> Result<Arc<Session>, BackendError> {
        let is_alive = |session: &&Arc<Session>| session.is_alive();
        let open = self.sessions.pool.lock().iter().find(is_alive).cloned();
        match open {
            Some(session) => Ok(session),
            None => {
                let _choosing = self.sessions.choosing.lock().await;
                self.session(self.profile.limits.lease(USUAL_LEASE)).await
            }
        }
    }

    async fn session(self: &Arc<Self>, lease: Duration) -> Result<Arc<Session>, BackendError> {
        if let Some(session) = self.choose(lease) {
            return Ok(session);
        }
        let session = Arc::new(Session::open(self, lease).await?);
        self.create_bell(&session).await?;
        if self.is_closed() {
            return Err(BackendError::closed());
        }
        self.sessions.pool.lock().push(session.clone());
        let (heard, is_heard) = watch::channel(false);
        let mut tasks = self.sessions.tasks.lock();
        let keep = session
            .clone()
            .keep(self.clock.clone(), self.config.tick_time, is_heard);
        tasks.spawn(keep);
        tasks.spawn(listen(Arc::downgrade(self), session.clone(), heard));
        Ok(session)
    }

    /// Returns the session that was opened for this length of lease, or `None` to open one. With the most sessions open, takes
    /// the next longer one, replaces one that no claim uses, or takes the longest.
    fn choose(&self, lease: Duration) -> Option<Arc<Session>> {
        let mut pool = self.sessions.pool.lock();
        pool.retain(|session| session.is_alive());
        if let Some(session) = pool.iter().find(|session| session.asked == lease) {
            return Some(session.clone());
        }
        if pool.len() < MAX_SESSIONS {
            return None;
        }
        let longer = pool.iter().filter(|session| session.asked > lease);
        if let Some(session) = longer.min_by_key(|session| session.asked) {
            return Some(session.clone());
        }
        match pool.iter().position(|session| !self.table.uses(session.id)) {
            Some(unused) => {
                let unused = pool.swap_remove(unused);
                // If it fails, the session expires.
                tokio::spawn(async move { unused.client.close().await });
                None
            }
            None => pool.iter().max_by_key(|session| session.asked).cloned(),
        }
    }

    async fn create_bell(&self, session: &Session) -> Result<(), BackendError> {
        match self
            .create(&session.client, &session.bell, &[], Mode::Ephemeral)
            .await
        {
            Err(error) if code(&error) != Some(Code::NODE_EXISTS) => Err(error),
            _ => Ok(()),
        }
    }

    /// Reports the claims that a bell names.
    fn report(&self, bell: &[u8]) {
        for mark in marks(bell) {
            if let Some(key) = self.table.lock_of(mark.id) {
                self.hints.push(Some(mark.id.client()), &Invalidation::Key(key));
            }
        }
    }

    /// Records the loss of all claims of a session.
    fn session_ended(&self, session: &Session) {
        self.table.end_session(session.id, self.now(), session.timeout());
        self.hints.push(None, &Invalidation::All);
    }
}

/// Watches a session's bell, reports the claims that it names, and ends all claims when the session has ended.
async fn listen(store: Weak<Locks>, session: Arc<Session>, heard: watch::Sender<bool>) {
    loop {
        let read = session.client.get_data_watched(&session.bell).await;
        let Some(locks) = store.upgrade() else { return };
        match read {
            Ok((data, _, mut bell)) => {
                locks.report(&data);
                drop(locks);
                heard.send_replace(true);
                let event = bell.fired().await;
                heard.send_replace(false);
                if let Some(locks) = store.upgrade().filter(|_| event == Event::Reconnected) {
                    locks.hints.push(None, &Invalidation::All);
                }
            }
            Err(error) if is_session_end(&error) => return locks.session_ended(&session),
            Err(error) => {
                let is_missing = code(&error) == Some(Code::NO_NODE);
                if !is_missing || locks.create_bell(&session).await.is_err() {
                    drop(locks);
                    // sleep: no event tells when ZooKeeper answers again.
                    sleep(READ_AGAIN).await;
                }
            }
        }
    }
}

/// The evictions that a bell names, the newest last.
pub(super) fn marks(bell: &[u8]) -> Vec<Value> {
    bell.split(|byte| *byte == 0).filter_map(Value::read).collect()
}

/// The data of a bell that names a further eviction.
pub(super) fn add_mark(bell: &[u8], mark: &Value) -> Vec<u8> {
    let mut marks = marks(bell);
    marks.push(mark.clone());
    let first = marks.len().saturating_sub(MAX_MARKS);
    marks[first..]
        .iter()
        .map(Value::write)
        .collect::<Vec<_>>()
        .join(&0)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use tenure_backend::{Claim, ClaimRef, ClientId, LockKey};

    use super::*;

    #[test]
    fn the_timeout_counts_from_the_last_check_but_two() {
        let at = |seconds| Instant::ORIGIN + Duration::from_secs(seconds);
        let mut checks = VecDeque::from([at(1)]);
        for (sent, from) in [(2, 1), (3, 1), (4, 2), (9, 3)] {
            confirm(&mut checks, at(sent));
            assert_eq!(checks.front(), Some(&at(from)));
        }
    }

    #[test]
    fn a_bell_names_the_newest_evictions() {
        let mark = |number: u64| {
            let id = ClaimId::new(ClientId::from_random([7; 16]), number);
            let at = ClaimRef {
                key: LockKey::new("k").expect("a key"),
                id,
            };
            let claim = Claim::of(at, Duration::from_secs(1));
            Value::of(&claim, NonZeroU32::MIN).evicted(Some("alice and\nbob".into()))
        };
        let mut bell = Vec::new();
        for number in 1..=20 {
            bell = add_mark(&bell, &mark(number));
        }
        assert_eq!(marks(&bell), (5..=20).map(mark).collect::<Vec<_>>());
        assert_eq!(marks(b""), []);
    }
}
