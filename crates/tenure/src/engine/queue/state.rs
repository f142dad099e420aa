//! The state machine of one key: holders, waiters, and whose turn it is. It reads no clock and does no I/O: time and events
//! come in, effects go out. The page in `mod.rs` explains the algorithm.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;
use tenure_backend::{Instant, Mode, PASS_WINDOW};
use tokio::sync::Notify;

use super::policy::{HandoverPolicy, PolicyLimits, Turn};
use super::waiter::{Offer, Places, Route, Waiter, WaiterId, WaiterState, Waiters};
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;

/// How often the store is asked about a holder whose lease is not renewed, while others wait behind it: a third of its
/// lease, or this if it is less.
const ASK_ABOUT: Duration = Duration::from_secs(10);

/// The shortest rest of the poller behind holders of this client.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// What a queue must know of its client and its store.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Claims are handed over in memory.
    pub(crate) local_handover: bool,
    /// How long an offered grant waits for its waiter to be polled.
    pub(crate) offer_window: Duration,
    pub(crate) policy: PolicyLimits,
}

#[derive(Debug)]
pub(crate) struct KeyQueue {
    pub(super) rules: Arc<Rules>,
    pub(super) phase: Phase,
    pub(super) holders: SmallVec<[Holder; 1]>,
    /// Waiting callers whose own call is in flight.
    pub(super) asking: SmallVec<[WaiterId; 1]>,
    pub(super) places: Places,
    /// Number of grants of the last run of a claim that lingered.
    pub(super) last_run: u32,
    /// A task waits for the end of a lingering claim.
    pub(super) has_linger_timer: bool,
    pub(super) contention: Option<Box<Contention>>,
}

/// ```text
///           first local waiter, or an offer
///     Idle <-------------------------------> Polling <----------> HandingOver
///           none left                          release with a successor / its answer
///     any phase --close--> Closed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No poller runs.
    Idle,
    /// The poller runs.
    Polling,
    /// A release that names a successor is in flight: the poller leaves the store alone.
    HandingOver,
    /// The client was closed.
    Closed,
}

/// A hold of this client, with the request that it serves.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) hold: Arc<Hold>,
    pub(super) request: LockRequest,
    /// Number of grants of the run that were given out.
    pub(super) grants: u32,
    /// The time until which the claim lingers: its holder is done, and the next local caller may have it.
    pub(super) lingers_until: Option<Instant>,
}

/// The part of a queue that exists only while callers wait.
#[derive(Debug)]
pub(super) struct Contention {
    pub(super) waiters: Waiters,
    pub(super) policy: HandoverPolicy,
    /// The time at which the store was last asked about a holder whose lease is not renewed.
    asked_about: Instant,
    watch: OfferWatch,
}

/// How the poller watches over offers that may not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferWatch {
    /// It looks again within the offer window, and an offer was made after its last look.
    Busy,
    /// It looks again within the offer window.
    Quiet,
    /// It sleeps until the next offer.
    Asleep,
}

impl KeyQueue {
    pub(crate) fn new(rules: Arc<Rules>, is_closed: bool) -> Self {
        KeyQueue {
            rules,
            phase: if is_closed { Phase::Closed } else { Phase::Idle },
            holders: SmallVec::new(),
            asking: SmallVec::new(),
            places: Places::default(),
            last_run: 1,
            has_linger_timer: false,
            contention: None,
        }
    }

    /// Handles an event.
    pub(crate) fn on<E: Event>(&mut self, now: Instant, event: E) -> (E::Reply, Effects) {
        let mut effects = Effects::default();
        let reply = event.apply(self, now, &mut effects);
        (reply, effects)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether the holds of this client leave room for that mode. Forgets holds whose local deadline has passed.
    pub(super) fn admits(&mut self, now: Instant, mode: Mode) -> bool {
        if self.holders.is_empty() {
            return true;
        }
        self.holders.retain(|holder| now < holder.hold.deadline());
        mode.admits(self.holders.iter().map(|holder| holder.request.mode))
    }

    pub(super) fn contention(&mut self) -> &mut Contention {
        let limits = self.rules.policy;
        self.contention.get_or_insert_with(|| {
            Box::new(Contention {
                waiters: Waiters::default(),
                policy: HandoverPolicy::new(limits),
                asked_about: Instant::ORIGIN,
                watch: OfferWatch::Busy,
            })
        })
    }

    /// Whether no local waiter has a claim to the next grant.
    pub(super) fn is_quiet(&self) -> bool {
        self.phase != Phase::HandingOver
            && self.contention.as_ref().is_none_or(|contention| {
                contention.waiters.first().is_none() && !contention.waiters.has_offers()
            })
    }

    /// Makes the poller look, and starts it if it does not run.
    pub(super) fn wake_poller(&mut self, effects: &mut Effects) {
        match self.phase {
            Phase::Idle => {
                self.phase = Phase::Polling;
                effects.poller = Some(PollerEffect::Start);
            }
            Phase::Polling | Phase::HandingOver => effects.notify_poller(),
            Phase::Closed => {}
        }
    }

    /// Makes the poller look, if it runs.
    pub(super) fn notify_poller(&self, effects: &mut Effects) {
        if matches!(self.phase, Phase::Polling | Phase::HandingOver) {
            effects.notify_poller();
        }
    }

    /// Watches over an offer that was just made.
    pub(super) fn watch_offer(&mut self, effects: &mut Effects) {
        let was = mem::replace(&mut self.contention().watch, OfferWatch::Busy);
        match self.phase {
            Phase::Idle => self.wake_poller(effects),
            _ if was == OfferWatch::Asleep => effects.notify_poller(),
            _ => {}
        }
    }

    /// A holder is done: the next local waiter gets the claim in memory, or it goes back to the store.
    pub(super) fn holder_done(&mut self, now: Instant, hold: &Arc<Hold>, effects: &mut Effects) -> Exit {
        let at = self
            .holders
            .iter()
            .position(|holder| Arc::ptr_eq(&holder.hold, hold));
        if at.is_some_and(|at| self.hand_over(now, at, effects)) {
            return Exit::HandedOver;
        }
        if let Some(until) = at.and_then(|at| self.linger(now, at)) {
            if !mem::replace(&mut self.has_linger_timer, true) {
                effects.linger_until = Some(until);
            }
            return Exit::Lingers;
        }
        let holder = at.map(|at| self.holders.remove(at));
        self.last_run = holder.as_ref().map_or(1, |holder| holder.grants);
        if !hold.depart() {
            return Exit::Gone;
        }
        if let Some((contention, holder)) = self.contention.as_mut().zip(holder) {
            contention.policy.run_ended(holder.grants);
        }
        let successor = self.successor(now);
        if successor.is_none() {
            self.notify_poller(effects);
        }
        Exit::Release(successor)
    }

    /// Hands a claim over to the first local waiter. Returns false if that is not possible.
    fn hand_over(&mut self, now: Instant, at: usize, effects: &mut Effects) -> bool {
        let Some(contention) = &mut self.contention else {
            return false;
        };
        let holder = &mut self.holders[at];
        let hold = &holder.hold;
        let is_allowed = self.rules.local_handover
            && contention.policy.may_hand_over()
            && holder.request.may_hand_over()
            && !hold.has_departed()
            && now < hold.deadline()
            && now - hold.confirmed() < PASS_WINDOW
            && holder.grants < hold.run();
        if !is_allowed {
            return false;
        }
        let Some(waiter) = contention.waiters.first_mut() else {
            return false;
        };
        if !waiter.request.fits(&holder.request) {
            return false;
        }
        let offer = Offer {
            hold: hold.clone(),
            nth: holder.grants,
            handed_over: true,
            at: now,
        };
        holder.grants += 1;
        holder.lingers_until = None;
        contention.policy.handed_over();
        waiter.offer(offer, effects);
        effects.handed_over = true;
        self.watch_offer(effects);
        true
    }

    /// The successor that a release names, for the first local waiter.
    fn successor(&mut self, now: Instant) -> Option<SuccessorRequest> {
        if self.phase != Phase::Polling || !self.asking.is_empty() {
            return None;
        }
        let request = self.contention.as_ref()?.waiters.first()?.request.clone();
        if !self.admits(now, request.mode) {
            return None;
        }
        let policy = &mut self.contention.as_mut()?.policy;
        if !policy.names_successor(now) {
            return None;
        }
        let reserve = policy.reserve();
        self.phase = Phase::HandingOver;
        Some(SuccessorRequest { request, reserve })
    }

    /// Releases a hold for a caller that does not wait for it.
    pub(super) fn give_up(&mut self, now: Instant, hold: &Arc<Hold>, effects: &mut Effects) {
        if let Exit::Release(successor) = self.holder_done(now, hold, effects) {
            effects.releases.push(ReleaseOrder {
                hold: hold.clone(),
                successor,
            });
        }
    }

    /// Notes a new hold.
    pub(super) fn hold(&mut self, hold: Arc<Hold>, request: LockRequest) {
        self.holders.push(Holder {
            hold,
            request,
            grants: 1,
            lingers_until: None,
        });
        if let Some(contention) = &mut self.contention {
            let Contention { waiters, policy, .. } = &mut **contention;
            policy.run_began(|| waiters.local());
        }
    }

    /// Offers a grant of the store to the first local waiter. Returns false if no waiter can use it.
    ///
    /// A waiter that arrived after the claim was asked for gets it within the handover window only: later, the claim may
    /// have been evicted, and a greater token given out before the waiter arrived.
    pub(super) fn deliver(&mut self, now: Instant, grant: Granted, effects: &mut Effects) -> bool {
        let Granted { hold, request } = grant;
        let is_fresh = now - hold.confirmed() < PASS_WINDOW;
        let first = self
            .contention
            .as_mut()
            .and_then(|contention| contention.waiters.first_mut());
        let first = first
            .filter(|first| first.request.fits(&request) && (is_fresh || first.arrived <= hold.confirmed()));
        let Some(waiter) = first else {
            self.notify_poller(effects);
            return false;
        };
        waiter.offer(Offer::new(hold.clone(), now), effects);
        self.hold(hold, request);
        self.watch_offer(effects);
        true
    }

    /// Passes offers on that were not taken in time. The waiters that missed them get none until they are polled.
    pub(super) fn expire_offers(&mut self, now: Instant, effects: &mut Effects) {
        let window = self.rules.offer_window;
        while let Some(contention) = &mut self.contention
            && let Some(id) = contention.waiters.overdue(now, window)
            && let Some(waiter) = contention.waiters.get_mut(id)
            && let WaiterState::Offered(offer) = mem::replace(&mut waiter.state, WaiterState::Missed)
        {
            self.give_up(now, &offer.hold, effects);
        }
    }

    /// How soon the poller looks after offers that may not be taken.
    pub(super) fn next_look(&mut self) -> Duration {
        let window = self.rules.offer_window;
        let contention = self.contention();
        if contention.waiters.has_offers() {
            return window / 4;
        }
        match contention.watch {
            // It is not notified of each offer: that would cost more than the hand-overs themselves.
            OfferWatch::Busy => {
                contention.watch = OfferWatch::Quiet;
                window
            }
            OfferWatch::Quiet | OfferWatch::Asleep => {
                contention.watch = OfferWatch::Asleep;
                Duration::MAX
            }
        }
    }

    /// What the poller does while holders of this client are in the way.
    pub(super) fn behind_holders(&mut self, now: Instant, rest: Duration) -> Look {
        let mut until = now + rest;
        let Some(contention) = &mut self.contention else {
            return Look::Exit;
        };
        for Holder { hold, .. } in &self.holders {
            until = until.min(hold.deadline());
            if !hold.is_lease_renewed() {
                let last = contention.asked_about.max(hold.confirmed());
                let ask_at = last + ASK_ABOUT.min(hold.lease() / 3);
                if ask_at <= now {
                    contention.asked_about = now;
                    return Look::Verify(hold.clone());
                }
                until = until.min(ask_at);
            }
        }
        Look::Rest((until - now).max(SHORTEST_REST))
    }

    /// The waiter of that name.
    pub(super) fn waiter(&mut self, id: WaiterId) -> Option<&mut Waiter> {
        self.contention.as_mut()?.waiters.get_mut(id)
    }

    /// Makes a caller wait whose own call was refused.
    pub(super) fn wait(
        &mut self,
        id: WaiterId,
        request: &LockRequest,
        now: Instant,
        route: Route,
        effects: &mut Effects,
    ) {
        let waiters = &mut self.contention().waiters;
        if let Some(waiter) = waiters.get_mut(id) {
            waiter.route = route;
            if let WaiterState::Calling(waker) = mem::replace(&mut waiter.state, WaiterState::Waiting(None)) {
                // It may want to know that it waits.
                effects.wakes.extend(waker);
            }
        } else {
            waiters.insert(Waiter {
                id,
                request: request.clone(),
                arrived: now,
                route,
                state: WaiterState::Waiting(None),
            });
        }
    }

    /// Whether nothing is left of callers that waited.
    #[cfg(all(test, feature = "testing"))]
    pub(super) fn is_at_rest(&self) -> bool {
        self.phase == Phase::Idle
            && self.contention.is_none()
            && self.asking.is_empty()
            && self.holders.is_empty()
    }

    /// Drops what exists only while callers wait.
    pub(super) fn tidy(&mut self) {
        let is_empty = |contention: &Contention| contention.waiters.is_empty();
        if self.phase == Phase::Idle && self.contention.as_deref().is_some_and(is_empty) {
            self.contention = None;
        }
    }
}

impl Holder {
    pub(super) fn lingers(&self) -> bool {
        self.lingers_until.is_some()
    }
}

impl Waiter {
    pub(super) fn offer(&mut self, offer: Offer, effects: &mut Effects) {
        let (WaiterState::Waiting(waker) | WaiterState::Calling(waker)) =
            mem::replace(&mut self.state, WaiterState::Offered(offer))
        else {
            return;
        };
        effects.wakes.extend(waker);
    }

    pub(super) fn set(&mut self, state: WaiterState, effects: &mut Effects) {
        if let WaiterState::Waiting(waker) | WaiterState::Calling(waker) =
            mem::replace(&mut self.state, state)
        {
            effects.wakes.extend(waker);
        }
    }
}

impl Offer {
    /// A grant of the store.
    pub(super) fn new(hold: Arc<Hold>, at: Instant) -> Self {
        Offer {
            hold,
            nth: 0,
            handed_over: false,
            at,
        }
    }

    /// Whether the grant may still be returned to its caller.
    pub(super) fn is_good(&self, now: Instant) -> bool {
        let is_fresh = !self.handed_over || now - self.hold.confirmed() < PASS_WINDOW;
        is_fresh && now < self.hold.deadline()
    }
}

/// What must be done after an event, when the queue is unlocked.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wakes: SmallVec<[Waker; 1]>,
    pub(crate) poller: Option<PollerEffect>,
    /// Pollers of fair waiters that left.
    pub(crate) notify: Vec<Arc<Notify>>,
    pub(crate) releases: Vec<ReleaseOrder>,
    /// A claim was handed over in memory.
    pub(crate) handed_over: bool,
    /// A timer is to report [`LingerOver`](super::event::LingerOver) then.
    pub(crate) linger_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollerEffect {
    Start,
    Notify,
}

impl Effects {
    pub(super) fn notify_poller(&mut self) {
        self.poller.get_or_insert(PollerEffect::Notify);
    }
}

/// A hold to be released for a caller that does not wait for it.
#[derive(Debug)]
pub(crate) struct ReleaseOrder {
    pub(crate) hold: Arc<Hold>,
    pub(crate) successor: Option<SuccessorRequest>,
}

/// The claim that a release names as its successor.
#[derive(Clone, Debug)]
pub(crate) struct SuccessorRequest {
    pub(crate) request: LockRequest,
    /// Number of grants that the claim reserves.
    pub(crate) reserve: u32,
}

/// A grant of the store, accepted by the client.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) hold: Arc<Hold>,
    pub(crate) request: LockRequest,
}

/// Something that happens to a key.
pub(crate) trait Event {
    type Reply;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Self::Reply;
}

/// What becomes of the claim of a holder that is done.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The next local waiter has it.
    HandedOver,
    /// The client keeps it for the next local caller.
    Lingers,
    /// It was released before: the client was closed, or its local deadline has passed.
    Gone,
    /// It is to be released.
    Release(Option<SuccessorRequest>),
}

/// What the poller does next.
#[derive(Debug)]
pub(crate) enum Look {
    /// It ends.
    Exit,
    Rest(Duration),
    /// It asks the store about a holder whose lease is not renewed.
    Verify(Arc<Hold>),
    /// It asks the store for the first local waiter.
    Ask(SuccessorRequest, Turn),
}
