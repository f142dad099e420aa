//! Sessions, which claims share: one for each length of lease, kept alive by checks, and with a bell that evictors ring.
//!
//! A check is a transaction that the leader answers. ZooKeeper counts a session's timeout at least from the time at which the
//! last check but two was sent: a server that follows the leader may answer pings, and later checks, whose sign of life has not
//! reached the leader. So two checks are never under way at once, and each is sent a tick after the reply to the one before.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{BackendError, Clock, Effect, Instant};
use tenure_contenders::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::names::Names;
use crate::client::{Client, Op, Outcome, SessionInfo, State, is_session_end};
use crate::config::Config;
use crate::error::unanswered;

/// A session lasts as many checks.
const CHECKS: u32 = 6;

/// The most evictions that a bell names. Older ones are dropped.
const MAX_MARKS: usize = 16;

/// A session in ZooKeeper.
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) client: Client,
    pub(super) bell: String,
    /// Whether the bell is there, or why it could not be created, by the last reply; `None` until there is one.
    pub(super) has_bell: watch::Sender<Option<Result<(), BackendError>>>,
    /// The length of lease that it was opened for.
    pub(super) asked: Duration,
    /// The length that ZooKeeper has granted.
    granted: Duration,
    info: watch::Receiver<SessionInfo>,
    /// When the last three confirmed checks were sent. The connect counts as the first one.
    checks: Mutex<VecDeque<Instant>>,
}

impl Session {
    /// Opens a session. Its bell is not there yet.
    pub(super) async fn open(
        config: Config,
        names: &Names,
        clock: &dyn Clock,
        asked: Duration,
    ) -> Result<Session, BackendError> {
        let sent = clock.now();
        let client = Client::connect(config, asked).await?;
        let info = client.info();
        let (id, granted) = {
            let info = info.borrow();
            (info.id, info.timeout)
        };
        Ok(Session {
            id,
            client,
            bell: names.bell(id),
            has_bell: watch::Sender::new(None),
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

    /// Waits for the bell: a session without one cannot be kept alive.
    ///
    /// # Errors
    /// That of the create, or that there is no reply within `limit`.
    pub(super) async fn hears(&self, limit: Duration) -> Result<(), BackendError> {
        let mut has_bell = self.has_bell.subscribe();
        let created = timeout(limit, has_bell.wait_for(Option::is_some)).await;
        match created.ok().and_then(Result::ok).and_then(|reply| reply.clone()) {
            Some(reply) => reply,
            None => Err(unanswered(limit, Effect::Unknown)),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.info.borrow().state != State::Ended
    }

    /// Waits for the end of the session.
    pub(super) async fn ended(&self) {
        // If its task is gone, the session has ended, too.
        let _ = self
            .info
            .clone()
            .wait_for(|info| info.state == State::Ended)
            .await;
    }

    /// Whether new claims may use the session: enough of its timeout is left that checks can prolong it. One that has ended
    /// without its client's knowledge is not fresh.
    pub(super) fn is_fresh(&self, now: Instant, tick: Duration) -> bool {
        let usual = (self.timeout() * 2 / 3).max(self.pause(tick) * 4);
        self.is_alive() && now < self.counts_from() + usual
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
    pub(super) async fn keep(
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
    pub(super) pool: Mutex<Vec<Arc<Session>>>,
    /// Locked while a session is chosen or opened.
    pub(super) choosing: tokio::sync::Mutex<()>,
    pub(super) tasks: Mutex<JoinSet<()>>,
}

impl Sessions {
    /// Ends the tasks, and leaves the sessions to expire.
    pub(super) fn close(&self) {
        self.tasks.lock().abort_all();
        self.pool.lock().clear();
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
    let marks: Vec<String> = marks[first..].iter().map(Value::write).collect();
    marks.join("\0").into()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use tenure_backend::{Claim, ClaimId, ClaimRef, ClientId, LockKey};

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
