//! Sessions, which claims share: one for each length of lease, kept alive by checks, and with a node of its own in which evictors write.
//!
//! A check is a transaction that the leader answers. ZooKeeper counts a session's timeout at least from the time at which the
//! last check but two was sent: a server that follows the leader may answer pings, and later checks, whose sign of life has not
//! reached the leader. So two checks are never under way at once, and each is sent a tick after the reply to the one before.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{BackendError, Clock, Effect, Instant};
use tenure_contenders::{SharedAttempts, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::names::Names;
use crate::client::{Client, Op, Outcome, SessionInfo, State};
use crate::config::Config;
use crate::error::unanswered;

/// A session lasts as many checks.
const CHECKS: u32 = 6;

/// The most evictions that a session node names. Older ones are dropped.
const MAX_MARKS: usize = 16;

/// A session in ZooKeeper.
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) client: Client,
    pub(super) node: String,
    /// Whether the session node is there, or why it could not be created, by the last reply; `None` until there is one.
    pub(super) has_node: watch::Sender<Option<Result<(), BackendError>>>,
    /// The length of lease that it was opened for.
    pub(super) asked: Duration,
    /// The length that ZooKeeper has granted.
    granted: Duration,
    info: watch::Receiver<SessionInfo>,
    /// When the last three confirmed checks were sent, the oldest first. The connect counts as the first ones.
    checks: Mutex<[Instant; 3]>,
    clock: Arc<dyn Clock>,
    /// The servers' unit of time.
    tick: Duration,
}

impl Session {
    /// Opens a session. Its node is not there yet.
    pub(super) async fn open(
        config: Config,
        names: &Names,
        clock: Arc<dyn Clock>,
        asked: Duration,
    ) -> Result<Session, BackendError> {
        let (sent, tick) = (clock.now(), config.tick_time);
        let client = Client::connect(config, asked).await?;
        let info = client.info();
        let SessionInfo { id, timeout, .. } = *info.borrow();
        Ok(Session {
            id,
            client,
            node: names.session_node(id),
            has_node: watch::Sender::new(None),
            asked,
            granted: timeout,
            info,
            checks: Mutex::new([sent; 3]),
            clock,
            tick,
        })
    }

    /// Time without a sign of life after which ZooKeeper ends the session.
    pub(super) fn timeout(&self) -> Duration {
        self.granted.min(self.info.borrow().timeout)
    }

    /// The moment from which ZooKeeper counts the timeout, or an earlier one.
    pub(super) fn counts_from(&self) -> Instant {
        self.checks.lock()[0]
    }

    /// Waits for the session's node: a session without it cannot be kept alive.
    ///
    /// # Errors
    /// That of the create, or that there is no reply within `limit`.
    pub(super) async fn wait_for_node(&self, limit: Duration) -> Result<(), BackendError> {
        let mut has_node = self.has_node.subscribe();
        let created = timeout(limit, has_node.wait_for(Option::is_some)).await;
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
        let mut info = self.info.clone();
        let _ = info.wait_for(|info| info.state == State::Ended).await;
    }

    /// Whether new claims may use the session: enough of its timeout is left that checks can prolong it. One that has ended
    /// without its client's knowledge is not fresh.
    pub(super) fn is_fresh(&self) -> bool {
        let usual = (self.timeout() * 2 / 3).max(self.pause() * 4);
        self.is_alive() && self.clock.now() < self.counts_from() + usual
    }

    /// Confirms again and again that the session is alive, as long as its node is there.
    pub(super) async fn keep(&self) -> Infallible {
        let mut pause = self.pause();
        loop {
            // sleep: checks are sent at intervals.
            sleep(pause).await;
            let sent = self.clock.now();
            let check = Op::Check(self.node.clone(), None);
            pause = self.tick;
            if let Ok(Outcome::Done { .. }) = self.client.multi(&[check]).await {
                confirm(&mut self.checks.lock(), sent);
                pause = self.pause().saturating_sub(self.clock.now() - sent).max(pause);
            }
        }
    }

    fn pause(&self) -> Duration {
        self.tick.max(self.timeout() / CHECKS)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:x})", self.id)
    }
}

/// Adds a confirmed check.
fn confirm(checks: &mut [Instant; 3], sent: Instant) {
    *checks = [checks[1], checks[2], sent];
}

/// The sessions of a store, and their tasks.
#[derive(Default)]
pub(super) struct Sessions {
    pub(super) pool: Mutex<Vec<Arc<Session>>>,
    /// Locked while a session is chosen or opened.
    pub(super) choosing: tokio::sync::Mutex<()>,
    pub(super) opening: SharedAttempts,
    pub(super) tasks: Mutex<JoinSet<()>>,
}

impl Sessions {
    /// Ends the tasks, and leaves the sessions to expire.
    pub(super) fn close(&self) {
        self.tasks.lock().abort_all();
        self.pool.lock().clear();
    }
}

/// The evictions that a session node names, the newest last.
pub(super) fn marks(data: &[u8]) -> Vec<Value> {
    data.split(|byte| *byte == 0).filter_map(Value::read).collect()
}

/// The data of a session node that names a further eviction.
pub(super) fn add_mark(data: &[u8], mark: &Value) -> Vec<u8> {
    let mut marks = marks(data);
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
        let mut checks = [at(1); 3];
        for (sent, from) in [(2, 1), (3, 1), (4, 2), (9, 3)] {
            confirm(&mut checks, at(sent));
            assert_eq!(checks[0], at(from));
        }
    }

    #[test]
    fn a_session_node_names_the_newest_evictions() {
        let mark = |number: u64| {
            let id = ClaimId::new(ClientId::from_random([7; 16]), number);
            let at = ClaimRef {
                key: LockKey::new("k").expect("a key"),
                id,
            };
            let claim = Claim::of(at, Duration::from_secs(1));
            Value::of(&claim, NonZeroU32::MIN).evicted(Some("alice and\nbob".into()))
        };
        let mut data = Vec::new();
        for number in 1..=20 {
            data = add_mark(&data, &mark(number));
        }
        assert_eq!(marks(&data), (5..=20).map(mark).collect::<Vec<_>>());
        assert_eq!(marks(b""), []);
    }
}
