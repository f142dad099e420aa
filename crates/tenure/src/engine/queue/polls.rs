//! The events of pollers: a poller asks what to do next, or reports the store's answer.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{HANDOVER_WINDOW, Instant, Mode};

use super::effects::{Effects, Granted, Standing, SuccessorRequest};
use super::state::{Contention, Event, Holder, KeyQueue, OfferWatch, Phase};
use super::waiter::{Offer, WaiterId, WaiterState};
use crate::engine::hold::Hold;
use crate::engine::poller::Pause;
use crate::engine::request::LockRequest;
use crate::error::Error;

/// While callers wait behind a local holder whose lease is not renewed, the poller asks the store whether the holder
/// was evicted: at this interval, or at a third of the lease if that is less.
const ASK_ABOUT: Duration = Duration::from_secs(10);

/// The most waiters that one grant invites to call the store at the same time. If the call that ends last brings a
/// grant, that grant invites the next waiters.
const MAX_INVITED: usize = 64;

/// The shortest rest of the poller while this client holds the key.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// Queue event: the poller asks for its next action.
pub(crate) struct PollerLooks;

impl Event for PollerLooks {
    type Reply = PollerStep;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> PollerStep {
        queue.expire_offers(now, effects);
        let contention = queue.contention.as_mut();
        let standing = contention.and_then(|contention| contention.standing.take());
        match (queue.next_step(now), standing) {
            (PollerStep::Ask(next, _), Some(standing)) if next.request == standing.request => {
                PollerStep::AskAgain(standing)
            }
            (step, standing) => {
                effects.withdraw = standing.map(|standing| standing.claim);
                step
            }
        }
    }
}

/// The poller's next action.
#[derive(Debug)]
pub(crate) enum PollerStep {
    Exit,
    Rest(Duration),
    /// Ask the store whether this holder, whose lease is not renewed, was evicted.
    Verify(Arc<Hold>),
    /// Ask the store on behalf of the first local waiter, after this pause.
    Ask(SuccessorRequest, Pause),
    /// Ask the store at once for a claim of the first local waiter that may stand in the store's queue.
    AskAgain(Standing),
}

/// Queue event: the poller checks whether a waiter still wants the claim that the poller asks for.
pub(crate) struct IsWanted<'a>(pub(crate) &'a LockRequest);

impl Event for IsWanted<'_> {
    /// Time until the next check; `None` if the poller must stop asking for the claim.
    type Reply = Option<Duration>;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Option<Duration> {
        queue.expire_offers(now, effects);
        if queue.is_closed() || !queue.asking.is_empty() || !queue.admits(now, self.0.mode) {
            return None;
        }
        let contention = queue.contention.as_ref()?;
        let fits = contention.waiters.first()?.request == *self.0;
        // A claim that stands in the store's queue may be in front of the poller's.
        (fits && contention.standing.is_none()).then(|| queue.next_look())
    }
}

/// Queue event: the store granted the poller's claim.
pub(crate) struct PollGranted(pub(crate) Granted);

impl Event for PollGranted {
    /// Whether a waiter is offered the claim. If not, it must be released.
    type Reply = bool;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> bool {
        !queue.is_closed() && queue.deliver(now, self.0, effects)
    }
}

/// Queue event: the store refused the poller's claim with a permanent error. The first waiter fails.
pub(crate) struct PollFailed<'a> {
    pub(crate) request: &'a LockRequest,
    pub(crate) error: Error,
}

impl Event for PollFailed<'_> {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, _: Instant, effects: &mut Effects) {
        let contention = queue.contention.as_mut();
        let first = contention.and_then(|contention| contention.waiters.next_mut().next());
        if let Some(first) = first.filter(|first| first.request == *self.request) {
            first.set(WaiterState::Answered(Err(self.error)), effects);
        }
    }
}

/// Queue event: a release that named the next claim as its successor was answered, or ended without an answer.
pub(crate) struct SuccessorAnswered {
    /// Number of waiting claims of other clients, if the store reports it.
    pub(crate) others: Option<u32>,
    pub(crate) was_refused: bool,
    pub(crate) granted: Option<Granted>,
}

impl Event for SuccessorAnswered {
    /// True if the store granted the successor and the queue offered the grant to a waiter. If the store granted the
    /// successor but this is false, `SharedQueue::deliver` releases the claim.
    type Reply = bool;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> bool {
        if queue.is_closed() {
            return false;
        }
        if queue.phase == Phase::HandingOver {
            queue.phase = Phase::Polling;
        }
        if let Some(contention) = &mut queue.contention {
            contention
                .policy
                .successor_answered(now, self.others, self.was_refused);
        }
        match self.granted {
            // `deliver` notifies the poller if that is necessary.
            Some(granted) => queue.deliver(now, granted, effects),
            None => {
                queue.notify_poller(effects);
                false
            }
        }
    }
}

/// Queue event from a fair waiter's own poller: the store granted the waiter's claim.
pub(crate) struct QueueGranted {
    pub(crate) id: WaiterId,
    pub(crate) granted: Granted,
}

impl Event for QueueGranted {
    /// Whether the waiter is offered the claim. If not, it must be released.
    type Reply = bool;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> bool {
        queue.is_waiting(self.id) && queue.offer_to(now, self.id, self.granted, effects)
    }
}

/// Queue event from a fair waiter's own poller: the store refused the claim with a permanent error, or the poller
/// ends.
pub(crate) struct QueueFailed {
    pub(crate) id: WaiterId,
    pub(crate) error: Error,
}

impl Event for QueueFailed {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, _: Instant, effects: &mut Effects) {
        if let Some(waiter) = queue.waiter(self.id) {
            waiter.set(WaiterState::Answered(Err(self.error)), effects);
        }
    }
}

impl KeyQueue {
    /// What the poller does next, if no claim stands in the store's queue.
    fn next_step(&mut self, now: Instant) -> PollerStep {
        if self.is_closed() {
            return PollerStep::Exit;
        }
        if self.is_quiet() {
            self.phase = Phase::Idle;
            self.tidy();
            return PollerStep::Exit;
        }
        let rest = self.next_look();
        let first = self.contention().waiters.first();
        let Some(request) = first.map(|first| first.request.clone()) else {
            return PollerStep::Rest(rest);
        };
        if self.phase == Phase::HandingOver || !self.asking.is_empty() {
            return PollerStep::Rest(rest);
        }
        if !self.admits(now, request.mode) {
            return self.behind_holders(now, rest);
        }
        let (reserve, pause) = (self.reserve(&request), self.contention().policy.pause(now));
        PollerStep::Ask(SuccessorRequest { request, reserve }, pause)
    }

    /// Whether a waiter still waits: it has not left, and has neither an offer nor an error.
    pub(super) fn is_waiting(&mut self, id: WaiterId) -> bool {
        let waiter = self.waiter(id);
        waiter.is_some_and(|waiter| matches!(waiter.state, WaiterState::Waiting(_)))
    }

    /// Whether this waiter waits for an answer of the store, not for a holder: its own call is unanswered, or another
    /// caller's call is, and no holder of this client excludes the waiter.
    pub(super) fn is_unanswered(&mut self, now: Instant, id: WaiterId, mode: Mode) -> bool {
        let waiter = self.waiter(id);
        waiter.is_some_and(|waiter| matches!(waiter.state, WaiterState::Calling(_)))
            || (!self.asking.is_empty() && self.admits(now, mode))
    }

    /// Offers a grant of the store to the first local waiter. Returns false if no waiter can use it.
    ///
    /// A waiter that arrived after the grant's request was sent gets the grant only within 10 ms of that sending:
    /// after 10 ms the claim may have been evicted, and a greater token granted, before the waiter arrived.
    pub(super) fn deliver(&mut self, now: Instant, grant: Granted, effects: &mut Effects) -> bool {
        let confirmed = grant.hold.fresh_from();
        let is_fresh = now - confirmed < HANDOVER_WINDOW;
        let contention = self.contention.as_ref();
        let first = contention.and_then(|contention| contention.waiters.first());
        if let Some(first) = first
            && first.request == grant.request
            && (is_fresh || first.arrived <= confirmed)
        {
            let id = first.id;
            let hold = grant.hold.clone();
            let is_offered = self.offer_to(now, id, grant, effects);
            self.share(now, &hold, effects);
            self.invite(now, effects);
            return is_offered;
        }
        self.notify_poller(effects);
        false
    }

    fn offer_to(&mut self, now: Instant, id: WaiterId, grant: Granted, effects: &mut Effects) -> bool {
        let Granted { hold, request } = grant;
        let Some(waiter) = self.waiter(id) else {
            return false;
        };
        waiter.offer(Offer::new(hold.clone(), now), effects);
        self.hold(now, hold, request);
        self.watch_offer(effects);
        true
    }

    /// After a grant, invites the next waiting readers or waiters for permits to call the store themselves, all at
    /// once, up to the first that this client's holders exclude. A waiter that the store refuses keeps its place.
    pub(super) fn invite(&mut self, now: Instant, effects: &mut Effects) {
        let Some(contention) = &mut self.contention else {
            return;
        };
        if self.phase == Phase::HandingOver || !self.asking.is_empty() {
            return;
        }
        let Contention { waiters, policy, .. } = &mut **contention;
        let mut modes: Vec<Mode> = self.holders.iter().map(|holder| holder.hold.mode()).collect();
        for waiter in waiters.next_mut().take(MAX_INVITED) {
            let mode = waiter.request.mode;
            // While other clients wait for permits, invites no waiter for permits: most calls would be refused.
            let is_scarce = matches!(mode, Mode::Permits { .. }) && policy.others_wait();
            if is_scarce || !waiter.request.is_shared() || !mode.admits(modes.iter().copied()) {
                break;
            }
            modes.push(mode);
            self.asking.push(waiter.id);
            waiter.set(WaiterState::Invited(now), effects);
        }
        if !self.asking.is_empty() {
            self.watch_offer(effects);
        }
    }

    /// Ends offers and invitations that were not taken in time, and passes offered claims on as after an unlock. A
    /// waiter that missed an offer or invitation gets no other until it is polled.
    pub(super) fn expire_offers(&mut self, now: Instant, effects: &mut Effects) {
        let window = self.rules.offer_window;
        while let Some(contention) = &mut self.contention
            && let Some(id) = contention.waiters.overdue(now, window)
            && let Some(waiter) = contention.waiters.get_mut(id)
        {
            match mem::replace(&mut waiter.state, WaiterState::Missed) {
                WaiterState::Offered(offer) => self.give_up(now, &offer.hold, effects),
                _ => self.asking.retain(|asking| *asking != id),
            }
        }
    }

    /// Time until the poller checks for offers that were not taken; `MAX` if the next offer will notify the poller.
    pub(super) fn next_look(&mut self) -> Duration {
        let window = self.rules.offer_window;
        let contention = self.contention();
        if contention.waiters.has_offers() {
            return window / 4;
        }
        match contention.watch {
            // `Busy`: an offer was made since the last check, so the poller checks once more before it sleeps. That
            // offer did not notify the poller: only an `Asleep` one is notified, because a notification costs more
            // than the hand-over itself.
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

    /// The poller's action while this client holds the key: check a claim whose lease is not renewed, rest, or exit
    /// if no caller waits.
    pub(super) fn behind_holders(&mut self, now: Instant, rest: Duration) -> PollerStep {
        let mut until = now + rest;
        let Some(contention) = &mut self.contention else {
            return PollerStep::Exit;
        };
        for Holder { hold, .. } in &self.holders {
            until = until.min(hold.deadline());
            if hold.is_fixed() {
                let last = contention.asked_about.max(hold.confirmed());
                let ask_at = last + ASK_ABOUT.min(hold.lease() / 3);
                if ask_at <= now {
                    contention.asked_about = now;
                    return PollerStep::Verify(hold.clone());
                }
                until = until.min(ask_at);
            }
        }
        PollerStep::Rest((until - now).max(SHORTEST_REST))
    }
}
