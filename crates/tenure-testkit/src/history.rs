//! What happened to locks, as events in time, and the recorder that tests write them with.
//! Judging them is `checker.rs`; their text is `log.rs`.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_backend::{Clock, FencingToken, Instant, LockKey, Mode};

/// One thing that happened to one attempt to hold a key.
///
/// Histories of real processes are written and read as text, an event on each line: nanoseconds, attempt, verb,
/// and the verb's fields in this order, separated by single spaces.
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
/// `failed`, `unknown` and `lost` have no fields. A grant without a token has `token=-`; the modes are
/// `exclusive`, `read`, `write` and `permits:2/5`. The key comes last: it may contain spaces.
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, What};
///
/// let event: Event = "1700 7 release".parse().unwrap();
/// assert_eq!((event.attempt, &event.what), (7, &What::ReleaseInvoked));
/// assert_eq!(event.to_string(), "1700 7 release");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on the one clock that all processes of the history share.
    pub at: Instant,
    /// Which attempt; the number is used once in a history, also among processes.
    pub attempt: u64,
    /// What happened.
    pub what: What,
}

/// What happened to an attempt.
///
/// # Examples
/// ```
/// use tenure_testkit::{Event, What};
///
/// let what = |line: &str| line.parse::<Event>().unwrap().what;
/// assert_eq!(what("1700 7 release"), What::ReleaseInvoked);
/// // Who got no answer may hold the key or not: the checker excuses nothing by it.
/// assert_eq!(what("1800 8 unknown"), What::Unknown);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It was begun.
    Invoked {
        /// The key.
        key: LockKey,
        /// On whose behalf.
        owner: u64,
        /// How it wants to hold the key.
        mode: Mode,
    },
    /// It is known to stand in a first-come, first-served queue. Repeated when it was placed again, at the tail.
    Queued,
    /// It was answered that it holds the key.
    Acquired {
        /// The grant's token, where there is one.
        token: Option<FencingToken>,
        /// The local deadline: from then on it must not be believed.
        until: Instant,
    },
    /// It was answered that it does not hold the key and never will.
    Failed,
    /// Nobody knows how it ended. It proves nothing and excuses nothing.
    Unknown,
    /// Its release began: it is not believed any longer.
    ReleaseInvoked,
    /// Its release was confirmed.
    Released,
    /// Its holder was told that it lost the key, or died.
    Lost,
    /// Its holder asked whether it holds the key; the answer came at the event's time.
    Sampled {
        /// When it asked.
        since: Instant,
        /// What it was told.
        held: bool,
    },
    /// The guarded resource accepted a write with this token on its behalf.
    Accepted {
        /// The token shown.
        token: FencingToken,
    },
    /// The store was looked at and showed so many holders and waiters of the attempt's key.
    Seen {
        /// How many held it.
        holders: u32,
        /// How many waited in its queue.
        waiters: u32,
    },
}

/// Records a history from any number of tasks and threads. Clones record the same one.
///
/// Record what ends a belief right before it is done, and what begins one right after the answer came.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use std::sync::Arc;
/// use tenure_backend::{Clock, LockKey, Mode, SystemClock};
/// use tenure_testkit::{Recorder, What, check};
///
/// let recorder = Recorder::new(Arc::new(SystemClock));
/// let (key, owner, mode) = (LockKey::new("order:42").unwrap(), 1, Mode::Exclusive);
/// recorder.record(7, What::Invoked { key, owner, mode });
/// // … the lock is asked for, and granted …
/// let until = SystemClock.now() + Duration::from_secs(30);
/// recorder.record(7, What::Acquired { token: None, until });
/// recorder.record(7, What::ReleaseInvoked);
/// // … and given back; only then may another believe.
/// recorder.record(7, What::Released);
/// assert_eq!(check(recorder.history()).unwrap().acquired, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Arc<dyn Clock>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    /// An empty history on that clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Recorder {
            clock,
            events: Arc::default(),
        }
    }

    /// Records what happens to an attempt at this moment.
    pub fn record(&self, attempt: u64, what: What) {
        // Stamped and appended under one lock, so that the list is in the order of its times.
        let mut events = self.events.lock();
        let at = self.clock.now();
        events.push(Event { at, attempt, what });
    }

    /// What was recorded so far.
    pub fn history(&self) -> Vec<Event> {
        self.events.lock().clone()
    }
}
