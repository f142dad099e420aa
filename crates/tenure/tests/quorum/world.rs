//! The state of one simulation: the members with their data, the clients with their clocks, and all recorded events.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure::Guard;
use tenure::fenced::FencedCell;
use tenure_backend::{ClaimId, Clock, FencingToken, Instant, LockKey};
use tenure_memory::MemoryStore;
use tenure_testkit::{Event, EventKind, SimClock};
use tokio::sync::Notify;

/// What a member does after it has lost its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterLoss {
    /// The member answers `Recovering` until all leases that it granted have ended.
    Recover,
    /// The member grants claims at once: RedLock does not survive that.
    Grant,
}

/// A member: its data, and the empty store that replaces the data after a loss.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) stores: [MemoryStore; 2],
    epoch: AtomicUsize,
    down_until: Mutex<Instant>,
    recovers_until: Mutex<Instant>,
}

impl Member {
    pub(crate) fn epoch(&self) -> usize {
        self.epoch.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) clock: SimClock,
    paused_until: Mutex<Instant>,
    dead: AtomicBool,
    jumped: AtomicBool,
    /// For each member, the time until which the client cannot reach it.
    cut_until: Mutex<Vec<Instant>>,
}

/// A guard that the simulation observes until it is released.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) attempt: u64,
    pub(crate) client: usize,
    pub(crate) guard: Mutex<Option<Arc<Guard>>>,
    /// True once the hold was released, lost or evicted: the checker does not count it from then on.
    ended: AtomicBool,
}

impl Hold {
    /// Asks the guard whether it is held. False once the guard was released.
    pub(crate) fn is_held(&self) -> bool {
        self.guard.lock().as_ref().is_some_and(|guard| guard.is_held())
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) clock: SimClock,
    pub(crate) members: Vec<Member>,
    pub(crate) clients: Vec<ClientState>,
    /// The longest lease that a task asks for, and so the time for which a member without data recovers.
    pub(crate) longest_lease: Duration,
    holds: Mutex<Vec<Arc<Hold>>>,
    /// The claims that were evicted from a member. A holder learns that at its next renewal.
    evicted: Mutex<HashSet<ClaimId>>,
    fences: Mutex<BTreeMap<LockKey, FencedCell<u64>>>,
    events: Mutex<Vec<Event>>,
    latest: Mutex<Instant>,
    attempts: AtomicU64,
    log: Mutex<Vec<(Instant, String)>>,
    violations: Mutex<Vec<String>>,
    calm: AtomicBool,
    resumed: Notify,
}

impl World {
    pub(crate) fn new(members: usize, clients: usize, longest_lease: Duration) -> Arc<Self> {
        let clock = SimClock::new();
        let member = |_| Member {
            stores: [0, 1].map(|_| MemoryStore::new(Arc::new(clock.clone()))),
            epoch: AtomicUsize::new(0),
            down_until: Mutex::new(Instant::ORIGIN),
            recovers_until: Mutex::new(Instant::ORIGIN),
        };
        let client = |_| ClientState {
            clock: SimClock::new(),
            paused_until: Mutex::new(Instant::ORIGIN),
            dead: AtomicBool::new(false),
            jumped: AtomicBool::new(false),
            cut_until: Mutex::new(vec![Instant::ORIGIN; members]),
        };
        Arc::new(World {
            members: (0..members).map(member).collect(),
            clients: (0..clients).map(client).collect(),
            longest_lease,
            clock,
            holds: Mutex::default(),
            evicted: Mutex::default(),
            fences: Mutex::default(),
            events: Mutex::default(),
            latest: Mutex::new(Instant::ORIGIN),
            attempts: AtomicU64::new(1),
            log: Mutex::default(),
            violations: Mutex::default(),
            calm: AtomicBool::new(false),
            resumed: Notify::new(),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dead(&self, client: usize) -> bool {
        self.clients[client].dead.load(Ordering::Relaxed)
    }

    /// Returns true if the client may leave claims in the store until their leases end: it died, or its clock jumped.
    pub(crate) fn may_leave_claims(&self, client: usize) -> bool {
        self.is_dead(client) || self.clients[client].jumped.load(Ordering::Relaxed)
    }

    pub(crate) fn is_down(&self, member: usize) -> bool {
        self.now() < *self.members[member].down_until.lock()
    }

    /// Returns whether the client cannot reach the member.
    pub(crate) fn is_cut(&self, client: usize, member: usize) -> bool {
        self.now() < self.clients[client].cut_until.lock()[member]
    }

    pub(crate) fn cut(&self, client: usize, member: usize, time: Duration) {
        self.say(format!(
            "client {client} cannot reach member {member} for {time:?}"
        ));
        self.clients[client].cut_until.lock()[member] = self.now() + time;
    }

    pub(crate) fn is_recovering(&self, member: usize) -> bool {
        self.now() < *self.members[member].recovers_until.lock()
    }

    /// Waits until the client is not paused; forever if it is dead.
    pub(crate) async fn runs(&self, client: usize) {
        loop {
            if self.is_dead(client) {
                std::future::pending::<()>().await;
            }
            let left = *self.clients[client].paused_until.lock() - self.now();
            if left.is_zero() {
                return;
            }
            // sleep: advances paused time by the client's pause.
            let _ = tokio::time::timeout(left, self.resumed.notified()).await;
        }
    }

    pub(crate) fn pause(&self, client: usize, time: Duration) {
        self.say(format!("client {client} pauses for {time:?}"));
        *self.clients[client].paused_until.lock() = self.now() + time;
    }

    pub(crate) fn suspend(&self, client: usize, time: Duration) {
        self.say(format!("the clock of client {client} jumps by {time:?}"));
        self.clients[client].clock.suspend(time);
        self.clients[client].jumped.store(true, Ordering::Relaxed);
        self.end_holds(|hold| hold.client == client && !hold.is_held());
    }

    pub(crate) fn kill(&self, client: usize) {
        self.say(format!("client {client} dies"));
        self.clients[client].dead.store(true, Ordering::Relaxed);
        self.end_holds(|hold| hold.client == client);
    }

    pub(crate) fn stop_member(&self, member: usize, time: Duration) {
        self.say(format!("member {member} is down for {time:?}"));
        *self.members[member].down_until.lock() = self.now() + time;
    }

    /// Replaces the data of a member by an empty store.
    pub(crate) fn forget(&self, member: usize, after: AfterLoss) {
        self.say(format!("member {member} loses its data: {after:?}"));
        self.members[member].epoch.store(1, Ordering::Relaxed);
        if after == AfterLoss::Recover {
            *self.members[member].recovers_until.lock() = self.now() + self.longest_lease;
        }
    }

    pub(crate) fn end_faults(&self) {
        self.say("the faults end");
        self.calm.store(true, Ordering::Relaxed);
        for member in &self.members {
            *member.down_until.lock() = Instant::ORIGIN;
        }
        for client in &self.clients {
            *client.paused_until.lock() = Instant::ORIGIN;
            client.cut_until.lock().fill(Instant::ORIGIN);
        }
        self.resumed.notify_waiters();
    }

    /// Records that a claim was evicted from a member. The holder may still believe that it holds the key.
    pub(crate) fn evicted(&self, id: ClaimId) {
        if self.evicted.lock().insert(id) {
            self.end_holds(|hold| {
                hold.guard
                    .lock()
                    .as_ref()
                    .is_some_and(|guard| guard.claim().id == id)
            });
        }
    }

    fn is_evicted(&self, id: ClaimId) -> bool {
        self.evicted.lock().contains(&id)
    }

    /// Records a grant, and the guard that was returned for it.
    ///
    /// First asks all other guards whether they are held, and records their losses. The observer of a guard sees a loss
    /// later than the client: about 1 ms after the local deadline, or up to about 20 ms after the reply that the claim is
    /// gone. In this time, the client may release the claim and the store may grant the key again. Without this check,
    /// the history would then show two holders, although the earlier one had already reported its loss.
    pub(crate) fn acquired(&self, attempt: u64, client: usize, guard: Guard) -> Arc<Hold> {
        self.end_holds(|hold| !hold.is_held());
        let token = guard.token();
        // If an operator evicted the claim while the reply with the grant was under way, the checker gets the token, but no
        // period in which the lock was held.
        let is_evicted = self.is_evicted(guard.claim().id);
        let until = if is_evicted {
            Instant::ORIGIN
        } else {
            Instant::NEVER
        };
        self.record(attempt, EventKind::Acquired { token, until });
        let hold = Arc::new(Hold {
            attempt,
            client,
            ended: AtomicBool::new(is_evicted),
            guard: Mutex::new(Some(Arc::new(guard))),
        });
        self.holds.lock().push(hold.clone());
        hold
    }

    fn end_holds(&self, is_over: impl Fn(&Hold) -> bool) {
        let holds = self.holds.lock();
        for hold in holds.iter().filter(|hold| is_over(hold)) {
            self.end(hold, EventKind::Lost);
        }
    }

    /// Records the end of a hold, unless it has ended before.
    pub(crate) fn end(&self, hold: &Hold, how: EventKind) {
        if !hold.ended.swap(true, Ordering::Relaxed) {
            self.record(hold.attempt, how);
        }
    }

    /// Returns whether the checker counts the hold: it was neither released, lost nor evicted.
    pub(crate) fn counts(&self, hold: &Hold) -> bool {
        !hold.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn attempt(&self) -> u64 {
        self.attempts.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn record(&self, attempt: u64, kind: EventKind) {
        let mut latest = self.latest.lock();
        // Makes each time unique, so that the checker sees events in the order in which they happened.
        *latest = self.now().max(*latest + Duration::from_nanos(1));
        let at = *latest;
        self.events.lock().push(Event { at, attempt, kind });
    }

    /// Writes to the resource of the key. Returns whether the resource accepts the token.
    pub(crate) fn write(&self, attempt: u64, key: &LockKey, token: FencingToken) -> bool {
        let mut fences = self.fences.lock();
        let cell = fences.entry(key.clone()).or_default();
        let accepted = cell.update(token, |writes| *writes += 1).is_ok();
        if accepted {
            self.record(attempt, EventKind::Accepted { token });
        }
        accepted
    }

    pub(crate) fn say(&self, line: impl Into<String>) {
        self.log.lock().push((self.now(), line.into()));
    }

    pub(crate) fn violated(&self, rule: &str, what: impl std::fmt::Display) {
        self.add_violation(format!("{rule}: {what}"));
    }

    /// Records a violation, whose text begins with the rule.
    pub(crate) fn add_violation(&self, what: String) {
        self.say(format!("VIOLATION {what}"));
        self.violations.lock().push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    pub(crate) fn history(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// Drops all holds: the guards of dead clients refer to the simulation and would keep it in memory.
    pub(crate) fn forget_holds(&self) {
        self.holds.lock().clear();
    }

    /// The log of the simulation, in the order of time.
    pub(crate) fn text(&self) -> String {
        let events = self.history().into_iter();
        let told = events.filter(|event| !matches!(event.kind, EventKind::Sampled { .. }));
        let mut lines: Vec<(Instant, String)> = self.log.lock().clone();
        lines.extend(told.map(|event| (event.at, format!("attempt {}: {:?}", event.attempt, event.kind))));
        lines.sort_by_key(|(at, _)| *at);
        let start = lines.first().map_or(Instant::ORIGIN, |(at, _)| *at);
        lines.into_iter().fold(String::new(), |mut text, (at, line)| {
            let _ = writeln!(text, "{:>12?} {line}", at - start);
            text
        })
    }
}
