//! How a claim leaves its holder: to the next waiter in memory, to an heir in the store, or back to the store.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tenure_backend::{Claim, Fairness, Grant, Instant, PASS_WINDOW, Reach, Standing};
use tokio::sync::oneshot;

use super::driving::YIELD;
use super::state::{Line, State};
use crate::error::{Error, LostCause};
use crate::held::Held;
use crate::release::Departing;
use crate::timer::sleep;
use crate::waiter::{Offer, Offered, Waiter, wake};

/// Where the store cannot tell whether others wait, every so manyth run ends by letting them go first.
const RUNS_PER_YIELD: u32 = 4;

/// How often one client that hands a key on all the time lets go of it, on a store that somebody may use who is not heard
/// of: one that only tries, or that listens where the server does not count it. And for how long.
const BREATHES_EVERY: Duration = Duration::from_secs(1);
const BREATH: Duration = Duration::from_millis(5);

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
        if let Some(queue) = &mut state.queue {
            queue.run_ended(held.handed_out());
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
            self.engine.watchdog.give_back(departing);
        }
    }

    /// Closes the line, and gives what was held to be released. What must be held longer is left to the store.
    pub(crate) fn empty(self: &Arc<Self>) -> Vec<Departing> {
        let now = self.engine.clock.now();
        let holders = self.state.lock().holders.clone();
        for held in holders {
            if let Some(until) = held
                .kept_until()
                .filter(|until| *until > now && held.is_believed(now))
            {
                self.keep(&held, until, oneshot::channel().0);
                held.lose(LostCause::Closed);
            }
        }
        let release = |held| match self.leave(&held) {
            Exit::Release(departing) => Some(departing),
            Exit::Passed | Exit::Gone => None,
        };
        self.close().into_iter().filter_map(release).collect()
    }

    /// The holder is done, and the store is to keep the claim until then: it is nobody's. `told` hears what
    /// the store said to it.
    pub(crate) fn keep(
        self: &Arc<Self>,
        held: &Arc<Held>,
        until: Instant,
        told: oneshot::Sender<Result<(), Error>>,
    ) {
        if !held.depart() {
            return;
        }
        self.engine.watchdog.untrack(held);
        let (line, held) = (self.clone(), held.clone());
        let believed_until = held.deadline();
        self.engine.watchdog.spawn(async move {
            let over = line
                .engine
                .watchdog
                .keep(&held, until, believed_until, told)
                .await;
            line.forget_holder(&held);
            if over {
                Departing::new(line, held.claim.clone(), None).see_through().await;
            }
        });
    }

    fn forget_holder(&self, held: &Arc<Held>) {
        let mut state = self.state.lock();
        state.holders.retain(|other| !Arc::ptr_eq(other, held));
        Self::ring(&state);
    }

    /// Hands the claim to the next local waiter. The outer `None` says that it cannot be handed on.
    fn pass(&self, state: &mut State, held: &Arc<Held>) -> Option<Option<Waker>> {
        let queue = state.queue.as_mut()?;
        if !held.options.may_pass(held.claim.mode)
            || !self.engine.settings.passing
            || held.has_departed()
            || queue.run_left == 0
        {
            return None;
        }
        loop {
            let waiter = queue.take_first_if(|first| first.want.fits(&held.claim, &self.engine))?;
            // Read after the receiver has left the queue: what is handed on was fresh at that moment.
            let now = self.engine.clock.now();
            let fresh = held.is_believed(now) && now - held.confirmed() < PASS_WINDOW;
            let Some(nth) = fresh.then(|| held.next_in_run()).flatten() else {
                queue.put(waiter);
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
                self.meters().passed.increment(1);
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
        let profile = self.engine.backend.profile();
        let since = *queue.handed_on_since.get_or_insert(now);
        if profile.reach == Reach::Network && now - since >= BREATHES_EVERY {
            queue.handed_on_since = None;
            queue.breath_until = now + BREATH;
            return None;
        }
        if !profile.tells_others {
            queue.runs += 1;
            if queue.runs.is_multiple_of(RUNS_PER_YIELD) {
                queue.yield_until = now + YIELD;
                return None;
            }
        }
        queue.heir = true;
        let reserve = queue.reserve;
        Some(self.engine.claim_for_run(self, &first, Fairness::Unfair, reserve))
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
                    queue.handed_on_since = None;
                    queue.yield_until = self.engine.clock.now() + YIELD;
                }
                // Whoever is served needs no driver: it looks after offers by itself, as when a claim is passed on.
                if !matches!(heir, Some(Standing::Granted(_))) {
                    queue.bell.notify_one();
                }
            }
        }
        if let Some(Standing::Granted(grant)) = heir {
            self.deliver(&claim, grant);
        }
    }

    /// A grant came from the store for whoever waits first and is served by it; otherwise it goes back.
    /// False if it arrived dead.
    ///
    /// Whoever came after it was asked for gets it within the pass window only, as if it were passed on: the claim may
    /// have been evicted since, and a greater token given out before the newcomer came.
    pub(crate) fn deliver(self: &Arc<Self>, claim: &Arc<Claim>, grant: Grant) -> bool {
        let mut state = self.state.lock();
        let mut alive = true;
        let fresh = self.engine.clock.now() - grant.held_from < PASS_WINDOW;
        let is_for = |first: &Waiter| {
            first.want.fits(claim, &self.engine) && (fresh || !first.came_after(grant.held_from))
        };
        while let Some(queue) = &mut state.queue
            && let Some(waiter) = queue.take_first_if(is_for)
        {
            let Some(held) = self.hold_in(&mut state, claim, grant.clone(), &waiter.want) else {
                self.queue(&mut state).put(waiter);
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
        Self::ring(&state);
        drop(state);
        self.withdraw(claim.clone());
        alive
    }

    /// Makes a claim absent whose every call was answered, by the client's own task.
    pub(crate) fn withdraw(self: &Arc<Self>, claim: Arc<Claim>) {
        let departing = Departing::withdrawing(self.clone(), claim);
        self.engine.watchdog.give_back(departing);
    }

    /// Makes a claim absent of which some call was not answered, by the client's own task.
    pub(crate) fn withdraw_unanswered(self: &Arc<Self>, claim: Arc<Claim>) {
        self.withdraw(claim.clone());
        self.expect_late_call(claim);
    }

    /// A call for this claim was not answered: where the store forgets ended claims, it could place the claim again after
    /// it was given back. So it is withdrawn once more when no such call can place it any longer.
    pub(crate) fn expect_late_call(self: &Arc<Self>, claim: Arc<Claim>) {
        if self.engine.backend.profile().remembers_ended {
            return;
        }
        let line = self.clone();
        self.engine.watchdog.spawn(async move {
            let closing = line.engine.watchdog.closing();
            if !line.engine.watchdog.is_closed() {
                tokio::select! {
                    biased;
                    () = closing => {}
                    () = sleep(&line.engine.watchdog, line.engine.settings.call_limit) => {}
                }
            }
            let holds = |held: &Arc<Held>| held.claim.at.id == claim.at.id;
            if !line.state.lock().holders.iter().any(holds) {
                line.withdraw(claim);
            }
        });
    }
}
