//! Histories: timed events of lock attempts, and the recorder that tests use to write them.
//! `checker.rs` checks a history; `log.rs` reads and writes its text form.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_backend::{Clock, FencingToken, Instant, LockKey, Mode};

/// One event of one attempt to hold a key.
///
/// The text form has one event per line: nanoseconds, attempt, verb, and the verb's fields in the order shown here,
/// separated by single spaces. Processes use it to log their events.
///
/// ```text
/// 1000 7 invoked owner=3 mode=exclusive key=order:42
/// 1200 7 queued
/// 1500 7 acquired token=17 until=31500
/// 1600 7 sampled since=1590 held=true
/// 1650 7 accepted token=17
/// 1700 7 release
/// 1800 7 released
/// 1900 7 seen holders=0 waiters=0
/// ```
/// `failed`, `unknown`, `lost` and `downgrade` have no fields. A grant without a token has `token=-`; the modes are
/// `exclusive`, `read`, `write` and `permits:2/5`. The key comes last because it may contain spaces.
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, EventKind};
///
/// let event: Event = "1700 7 release".parse().unwrap();
/// assert_eq!((event.attempt, &event.kind), (7, &EventKind::ReleaseInvoked));
/// assert_eq!(event.to_string(), "1700 7 release");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event, on the one clock that all processes of the history share.
    pub at: Instant,
    /// Number of the attempt, unique in the history across all processes.
    pub attempt: u64,
    /// Kind of the event, with its fields.
    pub kind: EventKind,
}

/// Kind of an [`Event`].
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, EventKind};
///
/// let kind = |line: &str| line.parse::<Event>().unwrap().kind;
/// assert_eq!(kind("1700 7 release"), EventKind::ReleaseInvoked);
/// // An attempt without an answer may hold the key or not: the checker concludes nothing from it.
/// assert_eq!(kind("1800 8 unknown"), EventKind::Unknown);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The attempt began.
    Invoked {
        /// Key that the attempt wants to hold.
        key: LockKey,
        /// Owner of the attempt.
        owner: u64,
        /// Mode in which the attempt wants to hold the key.
        mode: Mode,
    },
    /// The attempt is known to wait in a first-come, first-served queue. Recorded again if the attempt lost its place
    /// and was placed again at the tail.
    Queued,
    /// The attempt was granted the key.
    Acquired {
        /// Token of the grant, if it has one.
        token: Option<FencingToken>,
        /// Local deadline: from this time on, the client must not treat the key as held.
        until: Instant,
    },
    /// The attempt ended without a grant, and will never get one.
    Failed,
    /// The attempt's outcome is unknown. The checker concludes nothing from it.
    Unknown,
    /// The holder began to release the key, and no longer counts as holding it.
    ReleaseInvoked,
    /// The store confirmed the release.
    Released,
    /// The holder began to turn its write lock into a read lock, and counts as a reader from now on.
    DowngradeInvoked,
    /// The holder learned that it lost the key, or its process died.
    Lost,
    /// The holder asked its guard whether it holds the key. The event's time is that of the answer.
    Sampled {
        /// Time of the question.
        since: Instant,
        /// Whether the guard said that its lock is held.
        held: bool,
    },
    /// The guarded resource accepted a write of this attempt.
    Accepted {
        /// Token sent with the write.
        token: FencingToken,
    },
    /// An inspection of the store showed the holders and waiters of the key.
    Seen {
        /// Number of holders.
        holders: u32,
        /// Number of waiters in the queue.
        waiters: u32,
    },
}

/// Records a history from any number of tasks and threads. Clones share one history.
///
/// Record the end of a holding period right before the release or downgrade is sent, and its start right after the
/// grant arrived. Otherwise the recorded periods are longer than the real ones, and the checker reports overlaps that
/// did not happen.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use std::sync::Arc;
/// use tenure_backend::{Clock, LockKey, Mode, SystemClock};
/// use tenure_testkit::{Recorder, EventKind, check};
///
/// let recorder = Recorder::new(Arc::new(SystemClock));
/// let (key, owner, mode) = (LockKey::new("order:42").unwrap(), 1, Mode::Exclusive);
/// recorder.record(7, EventKind::Invoked { key, owner, mode });
/// // … acquire the lock …
/// let until = SystemClock.now() + Duration::from_secs(30);
/// recorder.record(7, EventKind::Acquired { token: None, until });
/// recorder.record(7, EventKind::ReleaseInvoked);
/// // … release it; only now may another attempt hold the key.
/// recorder.record(7, EventKind::Released);
/// assert_eq!(check(recorder.history()).unwrap().acquired, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Arc<dyn Clock>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    /// Creates an empty history whose events are timed by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Recorder {
            clock,
            events: Arc::default(),
        }
    }

    /// Records an event of an attempt at the current time.
    pub fn record(&self, attempt: u64, kind: EventKind) {
        // The time is read and the event appended under one lock, so that the list is sorted by time.
        let mut events = self.events.lock();
        let at = self.clock.now();
        events.push(Event { at, attempt, kind });
    }

    /// Events recorded so far.
    pub fn history(&self) -> Vec<Event> {
        self.events.lock().clone()
    }
}
