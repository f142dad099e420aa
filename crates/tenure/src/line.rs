//! The local queue of one key: who of this client holds it, who waits, and who talks to the store for them.
//!
//! Unfair waiters queue here in memory, and at most one of them talks to the store. Fair waiters have claims of
//! their own in the store's queue and only their grants are noted here. How the store is asked is `seek`'s, and
//! the driver's loop is `drive`'s.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tenure_backend::{Claim, Fairness, Grant, Instant, Kind, LockKey, Mode, PASS_WINDOW, Standing};
use tokio::sync::Notify;

use crate::engine::Engine;
use crate::error::{Error, LostCause};
use crate::held::Held;
use crate::release::Departing;
use crate::waiter::{Offer, Offered, Waiter};
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
    /// Callers whose own call to the store is under way.
    callers: u32,
    /// There only while somebody waits.
    queue: Option<Box<Queue>>,
    /// The client was closed while somebody used this line.
    closed: bool,
}

/// The part of a line that exists only while somebody waits.
#[derive(Debug)]
struct Queue {
    /// In order of their places.
    waiters: VecDeque<Arc<Waiter>>,
    /// Who was offered a grant and may not have taken it yet.
    offers: SmallVec<[Arc<Waiter>; 1]>,
    bell: Arc<Notify>,
    /// The driver's task runs.
    driven: bool,
    /// A release with an heir is under way: the driver leaves the store alone.
    heir: bool,
    /// A claim that was refused: an unfair one leaves nothing behind and may ask again.
    spare: Option<Arc<Claim>>,
    /// Until then others may go first.
    yield_until: Instant,
    /// Hand-overs that this run may still have.
    run_left: u32,
    /// Runs that ended here.
    runs: u32,
    /// Somebody else was waiting when the store was last asked.
    others: bool,
}

impl Queue {
    fn new() -> Self {
        Queue {
            waiters: VecDeque::new(),
            offers: SmallVec::new(),
            bell: Arc::new(Notify::new()),
            driven: false,
            heir: false,
            spare: None,
            yield_until: Instant::ORIGIN,
            run_left: u32::MAX,
            runs: 0,
            others: false,
        }
    }

    fn push_back(&mut self, waiter: Arc<Waiter>) {
        waiter.set_place(self.waiters.back().map_or(0, |last| last.place() + 1));
        self.waiters.push_back(waiter);
    }

    fn push_front(&mut self, waiter: Arc<Waiter>) {
        waiter.set_place(self.waiters.front().map_or(0, |first| first.place() - 1));
        self.waiters.push_front(waiter);
    }

    /// Puts a waiter back where it stood.
    fn put_back(&mut self, waiter: Arc<Waiter>) {
        let at = self.waiters.partition_point(|other| other.place() < waiter.place());
        self.waiters.insert(at, waiter);
    }

    fn remove(&mut self, waiter: &Arc<Waiter>) {
        let at = self.waiters.partition_point(|other| other.place() < waiter.place());
        if self.waiters.get(at).is_some_and(|found| Arc::ptr_eq(found, waiter)) {
            self.waiters.remove(at);
        }
        self.offers.retain(|other| !Arc::ptr_eq(other, waiter));
    }

    /// Whether nobody waits and nothing is under way.
    fn is_idle(&self) -> bool {
        self.waiters.is_empty() && !self.heir && !self.offers.iter().any(|waiter| waiter.is_offered())
    }

    /// The first waiter that is being polled, as far as anybody knows.
    fn first(&self) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.is_waiting())
    }
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
    /// It was given back before: the client was closed, or its longest hold time ended.
    Gone,
    /// It goes back to the store.
    Release(Departing),
}

impl Line {
    pub(crate) fn new(engine: Arc<Engine>, key: LockKey, kind: Kind) -> Arc<Self> {
        Arc::new(Line { key, kind, engine, state: Mutex::default() })
    }

    /// An unfair caller comes.
    pub(crate) fn enter(self: &Arc<Self>, want: &Arc<Want>, tries: bool) -> Enter {
        let mut state = self.state.lock();
        if state.closed {
            return Enter::Closed;
        }
        let held = !self.admits(&mut state, want.mode);
        if tries {
            // A try is no waiter: it asks unless the answer is known.
            return if held { Enter::Busy } else { self.ask(&mut state) };
        }
        let shared = matches!(want.mode, Mode::Read | Mode::Permits { .. });
        let idle = state.queue.as_ref().is_none_or(|queue| queue.is_idle());
        if !held && idle && (state.callers == 0 || shared) {
            return self.ask(&mut state);
        }
        let waiter = Waiter::waiting(want.clone());
        self.queue(&mut state).push_back(waiter.clone());
        self.drive_it(&mut state);
        Enter::Wait(waiter)
    }

    fn ask(&self, state: &mut State) -> Enter {
        state.callers += 1;
        Enter::Ask
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

    fn queue<'s>(&self, state: &'s mut State) -> &'s mut Queue {
        state.queue.get_or_insert_with(|| Box::new(Queue::new()))
    }

    /// Sees to it that a driver runs, and wakes it.
    fn drive_it(self: &Arc<Self>, state: &mut State) {
        let Some(queue) = &mut state.queue else { return };
        if queue.driven {
            queue.bell.notify_one();
            return;
        }
        queue.driven = true;
        let bell = queue.bell.clone();
        self.engine.watchdog.spawn(crate::drive::drive(self.clone(), bell));
    }

    /// A caller's own call was refused: it waits, before all who came after it.
    pub(crate) fn wait_first(self: &Arc<Self>, waiter: Arc<Waiter>, claim: Arc<Claim>) {
        let mut state = self.state.lock();
        state.callers -= 1;
        if state.closed {
            drop(state);
            return waiter.answer(Err(self.engine.watchdog.closed()));
        }
        let queue = self.queue(&mut state);
        queue.push_front(waiter);
        queue.spare = Some(claim);
        self.drive_it(&mut state);
    }

    /// A caller's own call ended without a grant, and it does not wait.
    pub(crate) fn stop_asking(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.callers -= 1;
        self.drive_it(&mut state);
    }

    /// A waiter that had missed an offer is being polled again.
    pub(crate) fn revive(self: &Arc<Self>) {
        self.drive_it(&mut self.state.lock());
    }

    /// A waiter's future has gone, and left nothing.
    pub(crate) fn forget_waiter(self: &Arc<Self>, waiter: &Arc<Waiter>) {
        let mut state = self.state.lock();
        if let Some(queue) = &mut state.queue {
            queue.remove(waiter);
            queue.bell.notify_one();
        }
    }

    /// A waiter whose offer came too late to be returned stands where it stood, and the claim's run ends.
    pub(crate) fn return_late(self: &Arc<Self>, waiter: Arc<Waiter>, held: &Arc<Held>) {
        {
            let mut state = self.state.lock();
            let queue = self.queue(&mut state);
            queue.offers.retain(|other| !Arc::ptr_eq(other, &waiter));
            queue.put_back(waiter);
            self.drive_it(&mut state);
        }
        self.leave_behind(held);
    }

    /// Takes a grant for `want`; `None` if it arrived dead, and the claim is to be withdrawn.
    pub(crate) fn hold(self: &Arc<Self>, claim: &Arc<Claim>, grant: Grant, want: &Arc<Want>) -> Option<Arc<Held>> {
        let mut state = self.state.lock();
        self.hold_in(&mut state, claim, grant, want)
    }

    /// As [`hold`](Self::hold), for a caller whose own call was granted: it asks no more, unless it got `None`.
    pub(crate) fn hold_asked(self: &Arc<Self>, claim: &Arc<Claim>, grant: Grant, want: &Arc<Want>) -> Option<Arc<Held>> {
        let mut state = self.state.lock();
        let held = self.hold_in(&mut state, claim, grant, want)?;
        state.callers -= 1;
        self.drive_it(&mut state);
        Some(held)
    }

    fn hold_in(self: &Arc<Self>, state: &mut State, claim: &Arc<Claim>, grant: Grant, want: &Arc<Want>) -> Option<Arc<Held>> {
        if state.closed {
            return None;
        }
        let now = self.engine.clock.now();
        let held = Held::new(self, claim.clone(), grant, want.clone(), now)?;
        state.holders.push(held.clone());
        if let Some(queue) = &mut state.queue {
            // While others wait elsewhere, a run gives each local waiter one turn and no more.
            let locals = u32::try_from(queue.waiters.len()).unwrap_or(u32::MAX);
            queue.run_left = if queue.others { locals } else { u32::MAX };
            self.discard(queue.spare.take_if(|spare| !Arc::ptr_eq(spare, claim)));
        }
        self.engine.watchdog.track(&held, now);
        Some(held)
    }

    /// A holder is done: the next waiter gets the claim in memory, or it goes back to the store.
    pub(crate) fn leave(self: &Arc<Self>, held: &Arc<Held>) -> Exit {
        let mut state = self.state.lock();
        if let Some(waker) = self.pass(&mut state, held) {
            drop(state);
            waker.map(Waker::wake);
            return Exit::Passed;
        }
        if !held.depart() {
            return Exit::Gone;
        }
        state.holders.retain(|other| !Arc::ptr_eq(other, held));
        if let Some(owner) = &held.want.owner {
            owner.forget(&self.key, self.kind);
        }
        let heir = self.heir(&mut state);
        self.drive_it(&mut state);
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

    /// Hands the claim to the next local waiter. The outer `None` says that it cannot be handed on.
    fn pass(&self, state: &mut State, held: &Arc<Held>) -> Option<Option<Waker>> {
        if !held.want.may_pass() || !self.engine.settings.passing || held.has_departed() {
            return None;
        }
        let queue = state.queue.as_mut()?;
        if queue.run_left == 0 {
            return None;
        }
        loop {
            let at = queue.first()?;
            if !queue.waiters[at].want.fits(&held.claim, &self.engine) {
                return None;
            }
            let waiter = queue.waiters.remove(at)?;
            // Read after the receiver has left the queue: what is handed on was fresh at that moment.
            let now = self.engine.clock.now();
            let fresh = held.is_believed(now) && now - held.confirmed() < PASS_WINDOW;
            let Some(nth) = fresh.then(|| held.next_in_run()).flatten() else {
                queue.put_back(waiter);
                return None;
            };
            held.hand_on();
            match waiter.offer(Offer { held: held.clone(), nth, passed: true }, now) {
                Offered::Yes(waker) => {
                    queue.run_left -= 1;
                    queue.offers.retain(|other| other.is_offered());
                    queue.offers.push(waiter);
                    return Some(waker);
                }
                Offered::No if waiter.is_gone() => {}
                Offered::No => queue.put_back(waiter),
            }
        }
    }

    /// The claim to which a release may give the key at once, for the first local waiter.
    fn heir(self: &Arc<Self>, state: &mut State) -> Option<Arc<Claim>> {
        if state.closed || state.callers > 0 {
            return None;
        }
        let now = self.engine.clock.now();
        let queue = state.queue.as_mut()?;
        let first = queue.first()?;
        if queue.heir {
            return None;
        }
        if !self.engine.backend.profile().tells_others {
            queue.runs += 1;
            if queue.runs.is_multiple_of(RUNS_PER_YIELD) {
                queue.yield_until = now + YIELD;
                return None;
            }
        }
        let claim = self.claim_for(queue, first);
        queue.heir = true;
        Some(claim)
    }

    /// A claim for the waiter at that place, the refused one if it serves.
    fn claim_for(self: &Arc<Self>, queue: &mut Queue, at: usize) -> Arc<Claim> {
        let want = queue.waiters[at].want.clone();
        match queue.spare.take() {
            Some(claim) if want.fits(&claim, &self.engine) => claim,
            spare => {
                self.discard(spare);
                self.engine.claim(self, &want, Fairness::Unfair)
            }
        }
    }

    /// A refused claim is not needed any more: where refused claims queue in the store, it is withdrawn.
    fn discard(self: &Arc<Self>, spare: Option<Arc<Claim>>) {
        if let Some(claim) = spare.filter(|claim| self.engine.queues_in_store(claim)) {
            self.withdraw(claim);
        }
    }

    /// Makes a claim absent, by the client's own task.
    pub(crate) fn withdraw(self: &Arc<Self>, claim: Arc<Claim>) {
        self.engine.watchdog.spawn(Departing::withdrawing(self.clone(), claim).see_through());
    }

    /// The release that named an heir was answered, or given up.
    pub(crate) fn heir_answered(self: &Arc<Self>, claim: Arc<Claim>, others: Option<u32>, heir: Option<Standing>) {
        {
            let mut state = self.state.lock();
            if let Some(queue) = &mut state.queue {
                queue.heir = false;
                if let Some(others) = others {
                    queue.others = others > 0;
                }
                if !matches!(heir, Some(Standing::Ended | Standing::Granted(_))) {
                    queue.spare = Some(claim.clone());
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

    /// A grant came from the store for whoever waits first and is served by it; nobody there, and it goes back.
    pub(crate) fn deliver(self: &Arc<Self>, claim: &Arc<Claim>, grant: Grant) {
        let mut state = self.state.lock();
        loop {
            let found = state.queue.as_mut().and_then(|queue| {
                let at = queue.first()?;
                queue.waiters[at].want.fits(claim, &self.engine).then(|| queue.waiters.remove(at)).flatten()
            });
            let Some(waiter) = found else { break };
            let Some(held) = self.hold_in(&mut state, claim, grant.clone(), &waiter.want) else {
                self.queue(&mut state).put_back(waiter);
                break;
            };
            let now = self.engine.clock.now();
            match waiter.offer(Offer { held: held.clone(), nth: 0, passed: false }, now) {
                Offered::Yes(waker) => {
                    let queue = self.queue(&mut state);
                    queue.offers.retain(|other| other.is_offered());
                    queue.offers.push(waiter);
                    drop(state);
                    waker.map(Waker::wake);
                    return;
                }
                Offered::No => {
                    state.holders.retain(|other| !Arc::ptr_eq(other, &held));
                    self.engine.watchdog.untrack(&held);
                    if !waiter.is_gone() {
                        self.queue(&mut state).put_back(waiter);
                    }
                }
            }
        }
        if let Some(queue) = &mut state.queue {
            queue.spare = None;
        }
        drop(state);
        self.withdraw(claim.clone());
    }

    /// What the driver is to do next. Offers that were not taken in time go to the next waiter here.
    pub(crate) fn step(self: &Arc<Self>) -> Step {
        self.retract_offers();
        let mut state = self.state.lock();
        let window = self.engine.settings.offer_window;
        let Some(queue) = state.queue.as_mut() else { return Step::Exit };
        queue.offers.retain(|waiter| waiter.is_offered());
        if queue.is_idle() {
            let spare = queue.spare.take();
            state.queue = None;
            drop(state);
            self.discard(spare);
            return Step::Exit;
        }
        let Some(first) = queue.first() else { return Step::Rest(window) };
        let mode = queue.waiters[first].want.mode;
        if queue.heir || state.callers > 0 {
            return Step::Rest(window);
        }
        if !self.admits(&mut state, mode) {
            return Step::Rest(self.rest(&state));
        }
        let Some(queue) = state.queue.as_mut() else { return Step::Exit };
        let polite = queue.yield_until - self.engine.clock.now();
        let claim = self.claim_for(queue, first);
        Step::Ask(claim, polite)
    }

    /// How long the driver may rest while holders of this client are in the way.
    fn rest(&self, state: &State) -> Duration {
        let now = self.engine.clock.now();
        let until = state.holders.iter().map(|held| held.deadline()).min().unwrap_or(now);
        (until - now).min(self.engine.settings.offer_window).max(Duration::from_millis(1))
    }

    /// Whether the driver is to go on asking with that claim, and how soon to look again.
    pub(crate) fn still_asks(self: &Arc<Self>, claim: &Claim) -> Option<Duration> {
        self.retract_offers();
        let state = self.state.lock();
        let queue = state.queue.as_ref()?;
        let first = queue.first()?;
        let fits = queue.waiters[first].want.fits(claim, &self.engine);
        let check = if queue.offers.is_empty() { Duration::MAX } else { self.engine.settings.offer_window };
        fits.then_some(check)
    }

    /// The driver stopped asking; the claim, if it is absent from the store, may be used again.
    pub(crate) fn stopped_asking(self: &Arc<Self>, claim: Arc<Claim>) {
        let mut state = self.state.lock();
        match &mut state.queue {
            Some(queue) => queue.spare = Some(claim),
            None => self.discard(Some(claim)),
        }
    }

    /// The store refused for good: the first waiter is told, and the next one asks for itself.
    pub(crate) fn fail_first(self: &Arc<Self>, error: Error) {
        let waiter = {
            let mut state = self.state.lock();
            let Some(queue) = state.queue.as_mut() else { return };
            queue.first().and_then(|at| queue.waiters.remove(at))
        };
        if let Some(waiter) = waiter {
            waiter.answer(Err(error));
        }
    }

    fn retract_offers(self: &Arc<Self>) {
        let now = self.engine.clock.now();
        let window = self.engine.settings.offer_window;
        loop {
            let missed = {
                let mut state = self.state.lock();
                let Some(queue) = state.queue.as_mut() else { return };
                let missed = queue.offers.iter().find_map(|waiter| Some((waiter.clone(), waiter.retract(now, window)?)));
                if let Some((waiter, _)) = &missed {
                    queue.offers.retain(|other| !Arc::ptr_eq(other, waiter));
                    queue.put_back(waiter.clone());
                }
                missed
            };
            let Some((_, offer)) = missed else { return };
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
            self.discard(queue.spare);
            for waiter in queue.waiters {
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
