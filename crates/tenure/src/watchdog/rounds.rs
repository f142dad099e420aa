//! The watchdog's rounds: what is due is looked at, and calls that their callers may have stopped polling are taken
//! over. How claims are renewed is in `renewal.rs`, and when it all begins and ends in `life.rs`.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::MutexGuard;
use tenure_backend::Instant;

use super::calls::{Calls, TakeOver};
use super::life::{GONE, Gone, SHUT, Shared, Watchdog, spawn};
use super::renewal::{renew, tell_lost};
use super::wheel::Wheel;
use crate::belief::{renew_after, stall_after};
use crate::held::Held;
use crate::release::{Departing, see_through_together};
use crate::seek::next_wake;
use crate::timer::RECHECK;

/// How often calls are looked at while many are slow.
const CALLS_LOOK: Duration = Duration::from_millis(5);

/// Over which time the renewals after a replaced connection are spread.
const RECONNECT_SPREAD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Due {
    pub(super) wheel: Wheel<Held>,
    /// Calls that their callers may have stopped polling when they are due.
    pub(super) calls: Calls,
    /// What callers left to be given back, in one call if it may be.
    pub(super) departures: Vec<Departing>,
    /// When the watchdog wakes by itself.
    wakes_at: Instant,
}

impl Due {
    pub(super) fn new(now: Instant) -> Self {
        Due {
            wheel: Wheel::new(now),
            calls: Calls::default(),
            departures: Vec::new(),
            wakes_at: Instant::NEVER,
        }
    }
}

impl Watchdog {
    /// Watches over a claim that was granted.
    pub(crate) fn track(&self, held: &Arc<Held>, now: Instant) {
        let engine = &held.line.engine;
        let wanted = engine.backend.profile().first_renewal.unwrap_or(Duration::MAX);
        let renewal = now + renew_after(held.lease(), engine.dice()).min(wanted);
        let due = next_look(held, renewal);
        let mut all = self.0.due.lock();
        all.wheel.insert(held.clone(), due);
        self.0.wake_by(all, due);
    }

    /// Stops watching over a claim.
    pub(crate) fn untrack(&self, held: &Held) {
        let entry = self.0.due.lock().wheel.remove(held);
        drop(entry);
    }

    /// Gives a claim back on behalf of a caller who does not wait for it.
    pub(crate) fn give_back(&self, departing: Departing) {
        let mut all = self.0.due.lock();
        // Nobody is left to send it: the lease ends it.
        if self.0.state.load(Ordering::Acquire) >= GONE {
            drop(all);
            return departing.forget();
        }
        all.departures.push(departing);
        if all.departures.len() == 1 {
            drop(all);
            self.0.bell.notify_one();
        }
    }

    /// Takes over what a caller polls, if it is still under way after so long.
    pub(crate) fn track_call(&self, call: &Arc<impl TakeOver + 'static>, window: Duration) {
        let due = self.0.clock.now() + window;
        let tracked: Weak<dyn TakeOver> = Arc::downgrade(call) as _;
        let mut all = self.0.due.lock();
        all.calls.push(due, tracked);
        self.0.wake_by(all, due);
        if self.is_closed() {
            // Too late for the close to have seen it.
            call.clone().take_over();
        }
    }
}

impl Shared {
    /// Wakes the watchdog if it would wake too late by itself: locking does not wake a task each time.
    fn wake_by(&self, mut due: MutexGuard<'_, Due>, at: Instant) {
        if at < due.wakes_at {
            due.wakes_at = at;
            drop(due);
            self.bell.notify_one();
        }
    }
}

/// When to look at a claim: at `renewal`, or at its deadline if that comes first or it is not renewed.
pub(super) fn next_look(held: &Held, renewal: Instant) -> Instant {
    if held.is_renewed() {
        renewal.min(held.deadline())
    } else {
        held.deadline()
    }
}

/// The watchdog's loop.
pub(super) async fn run(shared: Arc<Shared>, _gone: Gone) {
    let mut reconnects = shared.backend.reconnects();
    while shared.state.load(Ordering::Acquire) < GONE {
        let next = tick(&shared);
        let now = shared.clock.now();
        if next.is_some_and(|next| next <= now) {
            tokio::task::yield_now().await;
            continue;
        }
        let pause = async {
            match next {
                None => pending().await,
                Some(next) => tokio::time::sleep((next - now).min(RECHECK)).await,
            }
        };
        tokio::select! {
            biased;
            reconnected = next_wake(&mut reconnects) => {
                if reconnected {
                    let held = shared.due.lock().wheel.items();
                    tokio::spawn(renew_all(shared.clone(), held));
                } else {
                    reconnects = None;
                }
            }
            () = shared.bell.notified() => {}
            () = pause => {}
        }
    }
}

/// Renews everything in batches spread over a second: a connection was replaced, and the server behind the new one may have
/// lost what is held.
async fn renew_all(shared: Arc<Shared>, held: Vec<Arc<Held>>) {
    let most = shared.backend.profile().limits.max_batch.get() as usize;
    let batches = u32::try_from(held.len().div_ceil(most)).unwrap_or(u32::MAX);
    for batch in held.chunks(most) {
        let now = shared.clock.now();
        let alive = |held: &&Arc<Held>| held.is_believed(now) && !held.has_departed();
        let batch = batch.iter().filter(alive).cloned().collect();
        let work = shared.clone();
        spawn(&shared, async move {
            renew(&work, batch).await;
        });
        tokio::time::sleep(RECONNECT_SPREAD / batches).await;
        if shared.state.load(Ordering::Acquire) >= SHUT {
            return;
        }
    }
}

/// Sees to everything that is due, and says when to look again.
fn tick(shared: &Arc<Shared>) -> Option<Instant> {
    let now = shared.clock.now();
    let most = shared.backend.profile().limits.max_batch.get() as usize;
    let (due, calls, departures) = {
        let mut all = shared.due.lock();
        (
            all.wheel.take_due(now, most, may_be_early),
            all.calls.take_due(now),
            std::mem::take(&mut all.departures),
        )
    };
    for_each_batch(departures, most, |batch| {
        spawn(shared, see_through_together(batch))
    });
    calls.take_over();
    let mut alive = Vec::new();
    let mut stalled = Duration::ZERO;
    let mut late = None;
    let engine = due.first().map(|(held, _)| held.line.engine.clone());
    for (held, at) in due {
        late = late.max(Some(now - at));
        if now - at > stall_after(held.lease()) {
            stalled = stalled.max(now - at);
        }
        if let Err(lost) = held.check(now) {
            tell_lost(&held, &lost);
            continue;
        }
        if held.has_departed() {
            continue;
        }
        alive.push(held);
    }
    {
        // Back into the wheel at once: a renewal that never answers is tried again within the same third.
        let mut all = shared.due.lock();
        for held in &alive {
            let again = next_look(held, now + stall_after(held.lease()));
            all.wheel.insert(held.clone(), again);
        }
    }
    alive.retain(|held| held.is_renewed());
    if let Some((engine, late)) = engine.zip(late) {
        engine.rounds().lateness.record(late);
    }
    if !stalled.is_zero() {
        tracing::warn!(
            "runtime stalled {} ms: leases are renewed late",
            stalled.as_millis()
        );
    }
    for_each_batch(alive, most, |batch| {
        let work = shared.clone();
        spawn(shared, async move {
            renew(&work, batch).await;
        });
    });
    let mut due = shared.due.lock();
    let calls = due.calls.next_due().map(|at| at.max(now + CALLS_LOOK));
    let next = due.wheel.next_due().into_iter().chain(calls).min();
    due.wakes_at = next.unwrap_or(Instant::NEVER);
    next
}

/// Calls `act` with all items, so many at a time.
fn for_each_batch<T>(items: Vec<T>, most: usize, mut act: impl FnMut(Vec<T>)) {
    let mut items = items.into_iter().peekable();
    while items.peek().is_some() {
        act(items.by_ref().take(most).collect());
    }
}

/// Renewals may be a twelfth of their lease early, and a first one a quarter of its time, so that they travel together.
fn may_be_early(held: &Held) -> Duration {
    if held.is_first_renewal_due() {
        let profile = held.line.engine.backend.profile();
        profile.first_renewal.unwrap_or_default() / 4
    } else if held.options.renewed {
        held.lease() / 12
    } else {
        Duration::ZERO
    }
}
