//! The local queue of one key: who of this client holds it, who waits, and who talks to the store for them.
//!
//! Unfair waiters queue here in memory, and at most one of them talks to the store. Claims that queue in the store
//! have tasks of their own, and only their grants are noted here. How the store is asked is `seek`'s, and the
//! driver's loop is `drive`'s.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tenure_backend::{Claim, Fairness, Grant, Instant, Kind, LockKey, Mode, PASS_WINDOW, Standing};

use crate::engine::Engine;
use crate::error::{Error, LostCause};
use crate::held::Held;
use crate::queue::Queue;
use crate::release::Departing;
use crate::waiter::{Offer, Offered, Waiter, wake};
use crate::want::Want;

/// How long an heir that was refused lets others go first.
const YIELD: Duration = Duration::from_millis(10);

/// Where the store cannot tell whether others wait, every so manyth run ends by letting them go first.
const RUNS_PER_YIELD: u32 = 4;

#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) key: LockKey,
    kind: Kind,
    pub(crate) engine: Arc<Engine>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    holders: SmallVec<[Arc<Held>; 1]>,
    /// Callers that wait for the answer to their own call.
    callers: u32,
    /// There while somebody waits, and so is the driver's task.
    queue: Option<Box<Queue>>,
    /// The client was closed: nobody waits or holds any more.
    closed: bool,
}

/// What a caller is told when it comes to the line.
pub(crate) enum Enter {
    /// Ask the store yourself, and say how it went.
    Ask,
    /// Somebody of this client holds it: a try fails without I/O.
    Busy,
    /// Wait for an offer.
    Wait(Arc<Waiter>),
    /// The client was closed.
    Closed,
}

/// What the driver is to do.
pub(crate) enum Step {
    /// Nobody waits: the driver's task ends.
    Exit,
    /// Look again at a ring of the bell, or then.
    Rest(Duration),
    /// Ask the store with this claim, after letting others go first for so long.
    Ask(Arc<Claim>, Duration),
}

/// What became of a claim whose holder is done.
pub(crate) enum Exit {
    /// The next waiter of this client has it.
    Passed,
    /// It was given back before: the client was closed, or belief in it had ended.
    Gone,
    /// It goes back to the store.
    Release(Departing),
}

impl Line {
    pub(crate) fn new(engine: Arc<Engine>, key: LockKey, kind: Kind) -> Arc<Self> {
        Arc::new(Line {
            key,
            kind,
            engine,
            state: Mutex::default(),
        })
    }

    /// Whether this is the line of that name.
    pub(crate) fn is_for(&self, key: &LockKey, kind: Kind) -> bool {
        self.key == *key && self.kind == kind
    }

    /// An unfair caller comes. Told to ask, it counts as asking until it says how that went, unless it only tries.
    pub(crate) fn enter(self: &Arc<Self>, want: &Arc<Want>, tries: bool) -> Enter {
        let mut state = self.state.lock();
        if state.closed {
            return Enter::Closed;
        }
        let held = !self.admits(&mut state, want.mode);
        if tries {
            // A try is no waiter: it asks unless the answer is known.
            return if held { Enter::Busy } else { Enter::Ask };
        }
        let shared = matches!(want.mode, Mode::Read | Mode::Permits { .. });
        let idle = state.queue.as_ref().is_none_or(|queue| queue.is_idle());
        if !held && idle && (state.callers == 0 || shared) {
            state.callers += 1;
            return Enter::Ask;
        }
        let waiter = Waiter::waiting(self, want);
        let queue = self.queue(&mut state);
        queue.push_back(waiter.clone());
        if !held {
            queue.bell.notify_one();
        }
        Enter::Wait(waiter)
    }

    /// Whether the believed holders of this client leave room for that mode; those that lost it are forgotten.
    fn admits(&self, state: &mut State, mode: Mode) -> bool {
        if state.holders.is_empty() {
            return true;
        }
        let now = self.engine.clock.now();
        state.holders.retain(|held| held.is_believed(now));
        mode.admits(state.holders.iter().map(|held| held.claim.mode))
    }

    /// The queue, with a driver.
    fn queue<'s>(self: &Arc<Self>, state: &'s mut State) -> &'s mut Queue {
        state.queue.get_or_insert_with(|| {
            let queue = Box::new(Queue::new());
            self.engine
                .watchdog
                .spawn(crate::drive::drive(self.clone(), queue.bell.clone()));
            queue
        })
    }

    /// A claim of this client is gone: whoever waits may ask.
    pub(crate) fn look_again(&self) {
        Self::ring(&self.state.lock());
    }

    fn ring(state: &State) {
        if let Some(queue) = &state.queue {
            queue.bell.notify_one();
        }
    }

    /// A caller's own call was refused: it waits, before all who came after it.
    pub(crate) fn wait_first(self: &Arc<Self>, waiter: Arc<Waiter>) {
        let mut state = self.state.lock();
        state.callers -= 1;
        if state.closed {
            drop(state);
            return waiter.answer(Err(self.engine.watchdog.closed()));
        }
        // A future that has gone has looked for itself in the queue already.
        if !waiter.is_gone() {
            self.queue(&mut state).push_front(waiter);
        }
        Self::ring(&state);
    }

    /// A caller's own call ended without a grant, and it does not wait.
    pub(crate) fn stop_asking(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.callers -= 1;
        Self::ring(&state);
    }

    /// A waiter that was passed over is being polled again: it stands where it stood.
    pub(crate) fn revive(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            return waiter.answer(Err(self.engine.watchdog.closed()));
        }
        let queue = self.queue(&mut state);
        queue.remove(waiter);
        queue.put_back(waiter.clone());
        queue.bell.notify_one();
    }

    /// A waiter's future has gone, and left nothing.
    pub(crate) fn forget_waiter(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        if let Some(queue) = &mut state.queue {
            queue.remove(waiter);
            queue.bell.notify_one();
        }
    }

    /// Takes a grant for `want`; `None` if it arrived dead, and the claim is to be withdrawn.
    pub(crate) fn hold(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        grant: Grant,
        want: &Arc<Want>,
    ) -> Option<Arc<Held>> {
        self.hold_in(&mut self.state.lock(), claim, grant, want)
    }

    /// As [`hold`](Self::hold), for a caller that counts as asking: it does so no more, unless it got `None`.
    pub(crate) fn hold_asked(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        grant: Grant,
        want: &Arc<Want>,
    ) -> Option<Arc<Held>> {
        let mut state = self.state.lock();
        let held = self.hold_in(&mut state, claim, grant, want)?;
        state.callers -= 1;
        Self::ring(&state);
        Some(held)
    }

    fn hold_in(
        self: &Arc<Self>,
        state: &mut State,
        claim: &Arc<Claim>,
        grant: Grant,
        want: &Arc<Want>,
    ) -> Option<Arc<Held>> {
        if state.closed {
            return None;
        }
        let now = self.engine.clock.now();
        let held = Held::new(self, claim.clone(), grant, want.clone(), now)?;
        state.holders.push(held.clone());
        if let Some(queue) = &mut state.queue {
            // While others wait elsewhere, a run gives each local waiter one turn and no more.
            queue.run_left = if queue.others { queue.len() } else { u32::MAX };
        }
        self.engine.watchdog.track(&held, now);
        Some(held)
    }

    /// A holder is done: the next waiter gets the claim in memory, or it goes back to the store.
    pub(crate) fn leave(self: &Arc<Self>, held: &Arc<Held>) -> Exit {
        let mut state = self.state.lock();
        if let Some(waker) = self.pass(&mut state, held) {
            drop(state);
            wake(waker);
            return Exit::Passed;
        }
        state.holders.retain(|other| !Arc::ptr_eq(other, held));
        if !held.depart() {
            return Exit::Gone;
        }
        let heir = self.heir(&mut state);
        if heir.is_none() {
            Self::ring(&state);
        }
        drop(state);
        self.engine.watchdog.untrack(held);
        Exit::Release(Departing::new(self.clone(), held.claim.clone(), heir))
    }

    /// As [`leave`](Self::leave), with what follows done by the client's own task.
    pub(crate) fn leave_behind(self: &Arc<Self>, held: &Arc<Held>) {
        if let Exit::Release(departing) = self.leave(held) {
            self.engine.watchdog.spawn(departing.see_through());
        }
    }

    /// The holder is done, and the claim stays in the store until its lease ends: it is nobody's.
    pub(crate) fn leave_standing(&self, held: &Arc<Held>) {
        let mut state = self.state.lock();
        state.holders.retain(|other| !Arc::ptr_eq(other, held));
        held.depart();
        Self::ring(&state);
        drop(state);
        self.engine.watchdog.untrack(held);
    }

    /// Hands the claim to the next local waiter. The outer `None` says that it cannot be handed on.
    fn pass(&self, state: &mut State, held: &Arc<Held>) -> Option<Option<Waker>> {
        let queue = state.queue.as_mut()?;
        if !held.want.may_pass()
            || !self.engine.settings.passing
            || held.has_departed()
            || queue.run_left == 0
        {
            return None;
        }
        loop {
            if !queue.first()?.want.fits(&held.claim, &self.engine) {
                return None;
            }
            let waiter = queue.take_first()?;
            // Read after the receiver has left the queue: what is handed on was fresh at that moment.
            let now = self.engine.clock.now();
            let fresh = held.is_believed(now) && now - held.confirmed() < PASS_WINDOW;
            let Some(nth) = fresh.then(|| held.next_in_run()).flatten() else {
                queue.put_back(waiter);
                return None;
            };
            held.hand_on();
            if let Offered::Yes(waker) = waiter.offer(
                Offer {
                    held: held.clone(),
                    nth,
                    passed: true,
                },
                now,
            ) {
                queue.run_left -= 1;
                queue.offered(waiter);
                return Some(waker);
            }
        }
    }

    /// The claim to which a release may give the key at once, for the first local waiter.
    fn heir(&self, state: &mut State) -> Option<Arc<Claim>> {
        let first = state.queue.as_ref()?.first()?.want.clone();
        if state.closed || state.callers > 0 || !self.admits(state, first.mode) {
            return None;
        }
        let now = self.engine.clock.now();
        let queue = state.queue.as_mut().filter(|queue| !queue.heir)?;
        if !self.engine.backend.profile().tells_others {
            queue.runs += 1;
            if queue.runs.is_multiple_of(RUNS_PER_YIELD) {
                queue.yield_until = now + YIELD;
                return None;
            }
        }
        queue.heir = true;
        Some(self.engine.claim(self, &first, Fairness::Unfair))
    }

    /// The release that named an heir was answered, or given up.
    pub(crate) fn heir_answered(
        self: &Arc<Self>,
        claim: Arc<Claim>,
        others: Option<u32>,
        heir: Option<Standing>,
    ) {
        {
            let mut state = self.state.lock();
            if let Some(queue) = &mut state.queue {
                queue.heir = false;
                if let Some(others) = others {
                    queue.others = others > 0;
                }
                if matches!(heir, Some(Standing::Waiting { .. })) {
                    queue.yield_until = self.engine.clock.now() + YIELD;
                }
                queue.bell.notify_one();
            }
        }
        if let Some(Standing::Granted(grant)) = heir {
            self.deliver(&claim, grant);
        }
    }

    /// A grant came from the store for whoever waits first and is served by it; otherwise it goes back.
    /// False if it arrived dead.
    pub(crate) fn deliver(self: &Arc<Self>, claim: &Arc<Claim>, grant: Grant) -> bool {
        let mut state = self.state.lock();
        let mut alive = true;
        while let Some(queue) = &mut state.queue
            && queue
                .first()
                .is_some_and(|first| first.want.fits(claim, &self.engine))
            && let Some(waiter) = queue.take_first()
        {
            let Some(held) = self.hold_in(&mut state, claim, grant.clone(), &waiter.want) else {
                self.queue(&mut state).put_back(waiter);
                alive = false;
                break;
            };
            let now = self.engine.clock.now();
            if let Offered::Yes(waker) = waiter.offer(
                Offer {
                    held: held.clone(),
                    nth: 0,
                    passed: false,
                },
                now,
            ) {
                self.queue(&mut state).offered(waiter);
                drop(state);
                wake(waker);
                return true;
            }
            state.holders.retain(|other| !Arc::ptr_eq(other, &held));
            self.engine.watchdog.untrack(&held);
        }
        drop(state);
        self.withdraw(claim.clone());
        alive
    }

    /// Makes a claim absent, by the client's own task.
    pub(crate) fn withdraw(self: &Arc<Self>, claim: Arc<Claim>) {
        self.engine
            .watchdog
            .spawn(Departing::withdrawing(self.clone(), claim).see_through());
    }

    /// What the driver is to do next. Offers that were not taken in time go to the next waiter here.
    pub(crate) fn step(self: &Arc<Self>) -> Step {
        self.retract_offers();
        let mut state = self.state.lock();
        let Some(queue) = state.queue.as_mut() else {
            return Step::Exit;
        };
        if queue.is_idle() {
            state.queue = None;
            return Step::Exit;
        }
        let rest = self.until_next_look(queue);
        let Some(want) = queue.first().map(|first| first.want.clone()) else {
            return Step::Rest(rest);
        };
        if queue.heir || state.callers > 0 {
            return Step::Rest(rest);
        }
        if !self.admits(&mut state, want.mode) {
            let now = self.engine.clock.now();
            let until = state
                .holders
                .iter()
                .map(|held| held.deadline())
                .min()
                .unwrap_or(now);
            return Step::Rest((until - now).min(rest).max(Duration::from_millis(1)));
        }
        let yield_until = state
            .queue
            .as_ref()
            .map_or(Instant::ORIGIN, |queue| queue.yield_until);
        let polite = yield_until - self.engine.clock.now();
        Step::Ask(self.engine.claim(self, &want, Fairness::Unfair), polite)
    }

    /// How soon to look after offers that may not be taken.
    fn until_next_look(&self, queue: &mut Queue) -> Duration {
        let window = self.engine.settings.offer_window;
        if queue.offers().is_empty() {
            window
        } else {
            window / 4
        }
    }

    /// Whether the driver is to go on asking with that claim, and how soon to look again.
    pub(crate) fn still_asks(self: &Arc<Self>, claim: &Claim) -> Option<Duration> {
        self.retract_offers();
        let mut state = self.state.lock();
        let queue = state.queue.as_mut()?;
        let fits = queue.first()?.want.fits(claim, &self.engine);
        let check = if queue.offers().is_empty() {
            Duration::MAX
        } else {
            self.until_next_look(queue)
        };
        fits.then_some(check)
    }

    /// The store refused for good: the waiter for whom it was asked is told, and the next one asks for itself.
    pub(crate) fn fail_first(self: &Arc<Self>, claim: &Claim, error: Error) {
        let waiter = {
            let mut state = self.state.lock();
            let Some(queue) = state.queue.as_mut() else { return };
            match queue.first() {
                Some(first) if first.want.fits(claim, &self.engine) => queue.take_first(),
                _ => None,
            }
        };
        if let Some(waiter) = waiter {
            waiter.answer(Err(error));
        }
    }

    /// Takes back what was offered and not taken in time. Who missed it is passed over until it is polled.
    fn retract_offers(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        let window = self.engine.settings.offer_window;
        loop {
            let missed = {
                let mut state = self.state.lock();
                let Some(queue) = state.queue.as_mut() else { return };
                queue
                    .offers()
                    .iter()
                    .find_map(|waiter| waiter.retract(now, window))
            };
            let Some(offer) = missed else { return };
            self.leave_behind(&offer.held);
        }
    }

    /// The client closes: waiters are told, and holders lose their claims, which are returned.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<Arc<Held>> {
        let (queue, holders) = {
            let mut state = self.state.lock();
            state.closed = true;
            (state.queue.take(), std::mem::take(&mut state.holders))
        };
        if let Some(queue) = queue {
            queue.bell.notify_one();
            for waiter in queue.into_waiters() {
                waiter.answer(Err(self.engine.watchdog.closed()));
            }
        }
        for held in &holders {
            held.lose(LostCause::Closed);
        }
        holders.into_vec()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.engine.lines.forget(&self.key, self.kind);
    }
}
