//! The state of one simulation: the store, the clocks and pauses of its clients, and all recorded events.
//! `actor.rs` has the tasks of the clients; `seed_run.rs` injects the faults.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure::Guard;
use tenure::fenced::FencedCell;
use tenure_backend::{Backend, ClaimId, Clock, FencingToken, Instant, LockKey, Mode};
use tenure_memory::MemoryStore;
use tenure_testkit::{Event, EventKind, SimClock};
use tokio::sync::Notify;

use crate::claims::Claims;
use crate::liveness::{Expectations, Waiter};
use crate::log::LogEntry;
use crate::queues::Queues;

#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) clock: SimClock,
    pub(crate) paused_until: Mutex<Instant>,
    pub(crate) dead: AtomicBool,
    /// Time of the latest jump of the client's clock.
    pub(crate) jumped: Mutex<Option<Instant>>,
}

/// A held lock that the simulation observes.
#[derive(Debug)]
pub(crate) struct ObservedHold {
    pub(crate) attempt: u64,
    pub(crate) client: usize,
    pub(crate) lease: Duration,
    pub(crate) guard: Mutex<Option<Arc<Guard>>>,
    /// Time at which an eviction or a data loss ended the claim in the store. The holder must notice within one lease
    /// from then.
    pub(crate) taken: Mutex<Option<Instant>>,
    /// The latest known local deadline, converted from the client's clock to the simulation's.
    pub(crate) until: Mutex<Instant>,
    pub(crate) lost: AtomicBool,
}

impl ObservedHold {
    /// Returns the guard's local deadline on the simulation's clock, and stores it in `until`. `None` if the guard is
    /// not held.
    pub(crate) fn look(&self, sim: &Simulation) -> Option<Instant> {
        let guard = self.guard.lock();
        let guard = guard.as_ref().filter(|guard| guard.is_held())?;
        let left = guard.local_deadline() - sim.bodies[self.client].clock.now();
        let until = sim.now() + left;
        *self.until.lock() = until;
        Some(until)
    }
}

/// The parameters of a simulation, drawn from the seed.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    /// Tasks request leases of `lease` plus 0 to 5 times `lease_step`.
    pub(crate) lease: Duration,
    pub(crate) lease_step: Duration,
    /// Maximum time for which a task holds a lock, in milliseconds.
    pub(crate) hold_ms: u64,
    /// Percentage of holds that call `verify`.
    pub(crate) verifies: u8,
    /// Whether clients wait with fair claims for their unfair callers too, as on a store that keeps all claims in one order.
    pub(crate) has_one_order: bool,
    pub(crate) loses_wakes: bool,
    pub(crate) evict_constantly: bool,
}

impl Parameters {
    pub(crate) const LEASE_STEPS: u32 = 6;

    pub(crate) fn longest_lease(&self) -> Duration {
        self.lease + self.lease_step * (Self::LEASE_STEPS - 1)
    }
}

#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) parameters: Parameters,
    clock: SimClock,
    /// The store, and the empty store that replaces it after a data loss. Both are created at the start: a store's
    /// tokens start from the wall clock, so a store that is created later would make the run depend on real time.
    pub(crate) stores: [MemoryStore; 2],
    pub(crate) bodies: Vec<ClientState>,
    pub(crate) queues: Mutex<Queues>,
    pub(crate) holds: Mutex<Vec<Arc<ObservedHold>>>,
    events: Mutex<Vec<Event>>,
    latest: Mutex<Instant>,
    log: Mutex<Vec<(Instant, LogEntry)>>,
    violations: Mutex<Vec<String>>,
    pub(crate) claims: Mutex<Claims>,
    pub(crate) present: Mutex<Expectations>,
    /// For each key, the resource that it guards: a counter of writes, which refuses old tokens.
    fences: Mutex<BTreeMap<LockKey, FencedCell<u64>>>,
    attempts: AtomicU64,
    epoch: AtomicUsize,
    down_until: Mutex<Instant>,
    calm: AtomicBool,
    resumed: Notify,
    lost_data_at: Mutex<Option<Instant>>,
    /// Number of restarts of the store, and a notification of each. A restart breaks the connections.
    restarts: Arc<(AtomicUsize, Notify)>,
}

impl Simulation {
    pub(crate) fn new(clients: usize, parameters: Parameters) -> Arc<Self> {
        let body = |_| ClientState {
            clock: SimClock::new(),
            paused_until: Mutex::new(Instant::ORIGIN),
            dead: AtomicBool::new(false),
            jumped: Mutex::new(None),
        };
        let clock = SimClock::new();
        Arc::new(Simulation {
            parameters,
            stores: [0, 1].map(|_| MemoryStore::new(Arc::new(clock.clone()))),
            clock,
            bodies: (0..clients).map(body).collect(),
            queues: Mutex::default(),
            holds: Mutex::default(),
            events: Mutex::default(),
            latest: Mutex::new(Instant::ORIGIN),
            log: Mutex::default(),
            violations: Mutex::default(),
            claims: Mutex::default(),
            present: Mutex::default(),
            fences: Mutex::default(),
            attempts: AtomicU64::new(1),
            epoch: AtomicUsize::new(0),
            down_until: Mutex::new(Instant::ORIGIN),
            calm: AtomicBool::new(false),
            resumed: Notify::new(),
            lost_data_at: Mutex::default(),
            restarts: Arc::default(),
        })
    }

    /// Opens a connection to the store that has no faults and belongs to no client.
    pub(crate) fn door(&self) -> Arc<dyn Backend> {
        self.stores[self.epoch()].client(Arc::new(self.clock.clone()))
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn epoch(&self) -> usize {
        self.epoch.load(Ordering::Relaxed)
    }

    pub(crate) fn is_down(&self) -> bool {
        self.now() < *self.down_until.lock()
    }

    /// Returns a future that completes when the store has restarted after this call.
    pub(crate) fn restart(&self) -> impl Future<Output = ()> + Send + 'static {
        let restarts = self.restarts.clone();
        let before = restarts.0.load(Ordering::Relaxed);
        async move {
            // `Notify` wakes tasks in a fixed order, unlike tokio's `watch`: a seed must always give the same run.
            let restarted = restarts.1.notified();
            if restarts.0.load(Ordering::Relaxed) == before {
                restarted.await;
            }
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(crate) fn is_dead(&self, client: usize) -> bool {
        self.bodies[client].dead.load(Ordering::Relaxed)
    }

    /// Waits until the client is not paused; forever if the client is dead.
    pub(crate) async fn runs(&self, client: usize) {
        loop {
            if self.is_dead(client) {
                std::future::pending::<()>().await;
            }
            let left = *self.bodies[client].paused_until.lock() - self.now();
            if left.is_zero() {
                return;
            }
            let resumed = self.resumed.notified();
            // sleep: advances paused time by the client's pause.
            let _ = tokio::time::timeout(left, resumed).await;
        }
    }

    pub(crate) fn pause(&self, client: usize, time: Duration) {
        self.say(LogEntry::Paused { client, time });
        *self.bodies[client].paused_until.lock() = self.now() + time;
    }

    pub(crate) fn suspend(&self, client: usize, time: Duration) {
        self.say(LogEntry::Jumped { client, time });
        self.bodies[client].clock.suspend(time);
        *self.bodies[client].jumped.lock() = Some(self.now());
        for hold in self.holds_of(client) {
            if hold.look(self).is_none() {
                self.lose(&hold);
            }
        }
    }

    fn holds_of(&self, client: usize) -> Vec<Arc<ObservedHold>> {
        let holds = self.holds.lock();
        holds
            .iter()
            .filter(|hold| hold.client == client)
            .cloned()
            .collect()
    }

    pub(crate) fn kill(&self, client: usize) {
        self.say(LogEntry::Died { client });
        self.bodies[client].dead.store(true, Ordering::Relaxed);
        for hold in self.holds_of(client) {
            self.lose(&hold);
        }
    }

    pub(crate) fn stop_store(&self, time: Duration, loses_data: bool) {
        self.say(LogEntry::StoreDown { time, loses_data });
        *self.down_until.lock() = self.now() + time;
        self.restarts.0.fetch_add(1, Ordering::Relaxed);
        self.restarts.1.notify_waiters();
        if loses_data {
            self.epoch.fetch_add(1, Ordering::Relaxed);
            *self.lost_data_at.lock() = Some(self.now());
            self.queues.lock().forget();
            self.claims.lock().forgotten(self.now());
            let holds = self.holds.lock().clone();
            holds.iter().for_each(|hold| self.take_away(hold));
        }
    }

    pub(crate) fn end_faults(&self) {
        self.say(LogEntry::WeatherEnds);
        self.calm.store(true, Ordering::Relaxed);
        *self.down_until.lock() = Instant::ORIGIN;
        self.resumed.notify_waiters();
        for body in &self.bodies {
            let mut until = body.paused_until.lock();
            *until = (*until).min(self.now());
        }
    }

    /// Records an eviction. A holder that has not noticed it after a whole lease breaks rule V2.
    pub(crate) fn evicted(&self, id: ClaimId, key: &LockKey) {
        self.claims.lock().evicted(id, key, self.now());
        let holds = self.holds.lock().clone();
        let of_claim =
            |hold: &&Arc<ObservedHold>| hold.guard.lock().as_ref().is_some_and(|g| g.claim().id == id);
        for hold in holds.iter().filter(of_claim) {
            self.take_away(hold);
        }
    }

    /// Records that the store granted a claim: its holder need not notice an eviction or a data loss before this
    /// grant.
    pub(crate) fn restored(&self, id: ClaimId) {
        for hold in self.holds.lock().iter() {
            if hold
                .guard
                .lock()
                .as_ref()
                .is_some_and(|guard| guard.claim().id == id)
            {
                *hold.taken.lock() = None;
            }
        }
    }

    fn take_away(&self, hold: &ObservedHold) {
        hold.taken.lock().get_or_insert(self.now());
        self.lose(hold);
    }

    /// Records that a hold is lost by now, or since its local deadline if that has passed.
    pub(crate) fn lose(&self, hold: &ObservedHold) {
        let deadline = *hold.until.lock();
        self.lose_at(hold, deadline);
    }

    /// Records that a hold was lost: at `since` if that is in the past, else now.
    pub(crate) fn lose_at(&self, hold: &ObservedHold, since: Instant) {
        if hold.guard.lock().is_some() && !hold.lost.swap(true, Ordering::Relaxed) {
            let (at, attempt, what) = (since, hold.attempt, EventKind::Lost);
            if at < self.now() {
                self.events.lock().push(Event {
                    at,
                    attempt,
                    kind: what,
                });
            } else {
                self.record(attempt, what);
            }
        }
    }

    pub(crate) fn waits(&self, attempt: u64, waits: Waiter) {
        self.present.lock().waits.insert(attempt, waits);
    }

    pub(crate) fn waits_no_more(&self, attempt: u64) {
        self.present.lock().waits.remove(&attempt);
    }

    /// Records that a task has a guard of the claim. Several guards may share a claim.
    pub(crate) fn takes(&self, id: ClaimId) {
        *self.present.lock().held.entry(id).or_default() += 1;
    }

    pub(crate) fn lets_go(&self, id: ClaimId) {
        let held = &mut self.present.lock().held;
        if let Some(count) = held.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                held.remove(&id);
            }
        }
    }

    pub(crate) fn invoke(&self, key: &LockKey, owner: u64, mode: Mode) -> u64 {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let key = key.clone();
        self.record(number, EventKind::Invoked { key, owner, mode });
        number
    }

    pub(crate) fn record(&self, attempt: u64, what: EventKind) {
        let mut latest = self.latest.lock();
        // Makes each time unique, so that the checker sees events in the order in which they happened.
        *latest = self.now().max(*latest + Duration::from_nanos(1));
        let at = *latest;
        self.events.lock().push(Event {
            at,
            attempt,
            kind: what,
        });
    }

    /// Writes to the key's resource. Returns true if the resource accepts the write: no newer token has written it.
    pub(crate) fn write(&self, attempt: u64, key: &LockKey, token: FencingToken) -> bool {
        let mut fences = self.fences.lock();
        let cell = fences.entry(key.clone()).or_default();
        let accepted = cell.update(token, |writes| *writes += 1).is_ok();
        if accepted {
            self.record(attempt, EventKind::Accepted { token });
        }
        accepted
    }

    pub(crate) fn say(&self, note: LogEntry) {
        self.log.lock().push((self.now(), note));
    }

    pub(crate) fn violated(&self, rule: &'static str, what: impl Into<String>) {
        let what = what.into();
        self.violations.lock().push(format!("{rule}: {what}"));
        self.say(LogEntry::Violation { rule, what });
    }

    /// Adds a violation that the checker found after the end of the simulation. It gets no log entry.
    pub(crate) fn add_violation(&self, violation: String) {
        self.violations.lock().push(violation);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    pub(crate) fn history(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    pub(crate) fn lost_data_at(&self) -> Option<Instant> {
        *self.lost_data_at.lock()
    }

    /// The log entries and the events in order of time, without the samples (answers of guards whether they are
    /// held). Shows tokens by rank, because their values depend on the wall clock.
    pub(crate) fn text(&self) -> String {
        let events = self.history();
        let mut ranks: Vec<FencingToken> = events.iter().filter_map(|event| token(&event.kind)).collect();
        ranks.sort();
        ranks.dedup();
        let said = self.log.lock().clone();
        let mut lines: Vec<(Instant, String)> = said
            .into_iter()
            .map(|(at, note)| (at, format!("{note:?}")))
            .collect();
        let told = events
            .into_iter()
            .filter(|event| !matches!(event.kind, EventKind::Sampled { .. }));
        for Event {
            at,
            attempt,
            kind: what,
        } in told
        {
            let rank = token(&what).map(|token| ranks.partition_point(|other| *other < token) + 1);
            let mut what = match what {
                EventKind::Acquired { .. } => "acquired".to_owned(),
                EventKind::Accepted { .. } => "accepted".to_owned(),
                other => format!("{other:?}"),
            };
            if let Some(rank) = rank {
                let _ = write!(what, " token {rank}");
            }
            lines.push((at, format!("attempt {attempt}: {what}")));
        }
        lines.sort_by_key(|(at, _)| *at);
        let start = lines.first().map_or(Instant::ORIGIN, |(at, _)| *at);
        let line = |(at, what): (Instant, String)| format!("{:>12?} {what}\n", at - start);
        lines.into_iter().map(line).collect()
    }
}

fn token(what: &EventKind) -> Option<FencingToken> {
    match what {
        EventKind::Acquired { token, .. } => *token,
        EventKind::Accepted { token } => Some(*token),
        _ => None,
    }
}
