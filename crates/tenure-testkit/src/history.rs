//! What happened to locks, as events in time, and the recorder that tests write them with.
//! Judging them is `checker.rs`; their text is `log.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
/// # Examples
/// ```
/// use std::time::Duration;
/// use std::sync::Arc;
/// use tenure_backend::{Clock, LockKey, Mode, SystemClock};
/// use tenure_testkit::{Recorder, check};
///
/// let recorder = Recorder::new(Arc::new(SystemClock));
/// let attempt = recorder.acquire_invoked(&LockKey::new("order:42").unwrap(), 1, Mode::Exclusive);
/// attempt.acquired(None, SystemClock.now() + Duration::from_secs(30));
/// attempt.release_invoked();
/// attempt.released();
/// assert_eq!(check(recorder.history()).unwrap().acquired, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    attempts: AtomicU64,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// An empty history on that clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::numbered_from(clock, 1)
    }

    /// An empty history whose attempts count from `first`, so that several processes share no number.
    pub fn numbered_from(clock: Arc<dyn Clock>, first: u64) -> Self {
        let shared = Shared {
            attempts: AtomicU64::new(first),
            events: Mutex::default(),
        };
        Recorder {
            clock,
            shared: Arc::new(shared),
        }
    }

    /// Records that an attempt begins, right before it does.
    pub fn acquire_invoked(&self, key: &LockKey, owner: u64, mode: Mode) -> Attempt {
        let attempt = Attempt {
            recorder: self.clone(),
            number: self.shared.attempts.fetch_add(1, Ordering::Relaxed),
        };
        attempt.record(What::Invoked {
            key: key.clone(),
            owner,
            mode,
        });
        attempt
    }

    /// What was recorded so far.
    pub fn history(&self) -> Vec<Event> {
        self.shared.events.lock().clone()
    }
}

/// One attempt of a history that is being recorded. Clones are the same attempt.
///
/// Record what ends a belief right before it is done, and what begins one right after the answer came.
///
/// # Examples
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tenure_backend::{Clock, LockKey, Mode, SystemClock};
/// use tenure_testkit::{Recorder, What};
///
/// let recorder = Recorder::new(Arc::new(SystemClock));
/// let attempt = recorder.acquire_invoked(&LockKey::new("order:42").unwrap(), 1, Mode::Exclusive);
/// // … the lock is asked for, and granted …
/// attempt.acquired(None, SystemClock.now() + Duration::from_secs(30));
/// attempt.release_invoked();
/// // … and given back; only then may another believe.
/// attempt.released();
/// assert_eq!(recorder.history().last().unwrap().what, What::Released);
/// ```
#[derive(Clone, Debug)]
pub struct Attempt {
    recorder: Recorder,
    number: u64,
}

impl Attempt {
    /// The attempt's number in the history.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// It is known to stand in the store's queue.
    pub fn queued(&self) {
        self.record(What::Queued);
    }

    /// It was answered that it holds the key.
    pub fn acquired(&self, token: Option<FencingToken>, until: Instant) {
        self.record(What::Acquired { token, until });
    }

    /// It will never hold the key.
    pub fn failed(&self) {
        self.record(What::Failed);
    }

    /// Nobody knows how it ended.
    pub fn unknown(&self) {
        self.record(What::Unknown);
    }

    /// Its release begins.
    pub fn release_invoked(&self) {
        self.record(What::ReleaseInvoked);
    }

    /// Its release was confirmed.
    pub fn released(&self) {
        self.record(What::Released);
    }

    /// Its holder was told of the loss.
    pub fn lost(&self) {
        self.record(What::Lost);
    }

    /// Its holder, who asked at `since`, was told whether it holds.
    pub fn sampled(&self, since: Instant, held: bool) {
        self.record(What::Sampled { since, held });
    }

    /// The guarded resource accepted a write with `token`.
    pub fn accepted(&self, token: FencingToken) {
        self.record(What::Accepted { token });
    }

    /// The store showed so many holders and waiters of the attempt's key.
    pub fn seen(&self, holders: u32, waiters: u32) {
        self.record(What::Seen { holders, waiters });
    }

    /// Stamps and appends under one lock, so that the list is in the order of its times.
    fn record(&self, what: What) {
        let mut events = self.recorder.shared.events.lock();
        events.push(Event {
            at: self.recorder.clock.now(),
            attempt: self.number,
            what,
        });
    }
}
