//! The events of holders, of pollers and of the store.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Instant, Mode};

use super::state::{Effects, Event, Exit, Granted, Holder, KeyQueue, Look, Phase, SuccessorRequest};
use super::waiter::{Offer, Route, WaiterId, WaiterState, Waiters};
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;
use crate::error::Error;

/// A holder is done.
pub(crate) struct HolderDone<'a>(pub(crate) &'a Arc<Hold>);

impl Event for HolderDone<'_> {
    type Reply = Exit;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Exit {
        queue.holder_done(now, self.0, effects)
    }
}

/// A holder is done, and does not wait for the release.
pub(crate) struct HolderGone<'a>(pub(crate) &'a Arc<Hold>);

impl Event for HolderGone<'_> {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) {
        queue.give_up(now, self.0, effects);
    }
}

/// A hold ends without a release: the store has no such claim any more, or no longer keeps it.
pub(crate) struct HoldEnded<'a>(pub(crate) &'a Arc<Hold>);

impl Event for HoldEnded<'_> {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, _: Instant, effects: &mut Effects) {
        queue.holders.retain(|holder| !Arc::ptr_eq(&holder.hold, self.0));
        queue.notify_poller(effects);
    }
}

/// The store granted the poller's claim.
pub(crate) struct PollGranted(pub(crate) Granted);

impl Event for PollGranted {
    /// Whether a waiter has it.
    type Reply = bool;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> bool {
        !queue.is_closed() && queue.deliver(now, self.0, effects)
    }
}

/// The store granted the claim of a fair waiter.
pub(crate) struct QueueGranted {
    pub(crate) id: WaiterId,
    pub(crate) granted: Granted,
}

impl Event for QueueGranted {
    /// Whether the waiter has it.
    type Reply = bool;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> bool {
        if queue.is_closed() {
            return false;
        }
        let Granted { hold, request } = self.granted;
        let waiter = queue.waiter(self.id);
        let Some(waiter) = waiter.filter(|waiter| matches!(waiter.state, WaiterState::Waiting(_))) else {
            return false;
        };
        waiter.offer(Offer::new(hold.clone(), now), effects);
        queue.hold(hold, request);
        queue.watch_offer(effects);
        true
    }
}

/// The store refused the claim of a fair waiter, or the client closes.
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

/// Whether a fair waiter waits.
pub(crate) struct IsWaiting(pub(crate) WaiterId);

impl Event for IsWaiting {
    type Reply = bool;

    fn apply(self, queue: &mut KeyQueue, _: Instant, _: &mut Effects) -> bool {
        let waiter = queue.waiter(self.0);
        waiter.is_some_and(|waiter| matches!(waiter.state, WaiterState::Waiting(_)))
    }
}

/// A release with a successor was answered, or dropped.
pub(crate) struct SuccessorAnswered {
    /// Number of other waiters, where the store reports it.
    pub(crate) others: Option<u32>,
    pub(crate) was_refused: bool,
    pub(crate) granted: Option<Granted>,
}

impl Event for SuccessorAnswered {
    /// Whether a waiter has the grant.
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
            // The poller is not notified: it watches over offers by itself.
            Some(granted) => queue.deliver(now, granted, effects),
            None => {
                queue.notify_poller(effects);
                false
            }
        }
    }
}

/// The poller looks.
pub(crate) struct PollerLooks;

impl Event for PollerLooks {
    type Reply = Look;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Look {
        queue.expire_offers(now, effects);
        if queue.is_closed() {
            return Look::Exit;
        }
        if queue.is_quiet() {
            queue.phase = Phase::Idle;
            queue.tidy();
            return Look::Exit;
        }
        let rest = queue.next_look();
        let is_handing_over = queue.phase == Phase::HandingOver;
        let contention = queue.contention();
        let Some(request) = contention.waiters.first().map(|first| first.request.clone()) else {
            return Look::Rest(rest);
        };
        let (reserve, turn) = (contention.policy.reserve(), contention.policy.turn(now));
        if is_handing_over || !queue.asking.is_empty() {
            return Look::Rest(rest);
        }
        if !queue.admits(now, request.mode) {
            return queue.behind_holders(now, rest);
        }
        Look::Ask(SuccessorRequest { request, reserve }, turn)
    }
}

/// The poller checks whether to go on asking for a claim.
pub(crate) struct IsWanted<'a>(pub(crate) &'a LockRequest);

impl Event for IsWanted<'_> {
    /// How soon to check again; `None` if no waiter wants the claim.
    type Reply = Option<Duration>;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Option<Duration> {
        queue.expire_offers(now, effects);
        if queue.is_closed() || !queue.asking.is_empty() || !queue.admits(now, self.0.mode) {
            return None;
        }
        let first = queue.contention.as_ref()?.waiters.first()?;
        let fits = first.request.fits(self.0);
        fits.then(|| queue.next_look())
    }
}

/// The store refused the poller's claim for good: the first waiter ends, and the next one asks for itself.
pub(crate) struct PollFailed<'a> {
    pub(crate) request: &'a LockRequest,
    pub(crate) error: Error,
}

impl Event for PollFailed<'_> {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, _: Instant, effects: &mut Effects) {
        let waiters = queue
            .contention
            .as_mut()
            .map(|contention| &mut contention.waiters);
        let first = waiters.and_then(Waiters::first_mut);
        if let Some(first) = first.filter(|first| first.request.fits(self.request)) {
            first.set(WaiterState::Answered(Err(self.error)), effects);
        }
    }
}

/// Whether a waiter stands behind a call without an answer, its own or another's, and behind no holder.
pub(crate) struct IsUnanswered {
    pub(crate) id: WaiterId,
    pub(crate) mode: Mode,
}

impl Event for IsUnanswered {
    type Reply = bool;

    fn apply(self, queue: &mut KeyQueue, now: Instant, _: &mut Effects) -> bool {
        let waiter = queue.waiter(self.id);
        waiter.is_some_and(|waiter| matches!(waiter.state, WaiterState::Calling(_)))
            || (!queue.asking.is_empty() && queue.admits(now, self.mode))
    }
}

/// A claim may have lingered for its time.
pub(crate) struct LingerOver;

impl Event for LingerOver {
    /// When the next claim has lingered for its time.
    type Reply = Option<Instant>;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Option<Instant> {
        queue.end_lingering(now, effects)
    }
}

/// Lists the holds of this client.
pub(crate) struct Holds;

impl Event for Holds {
    type Reply = Vec<Arc<Hold>>;

    fn apply(self, queue: &mut KeyQueue, _: Instant, _: &mut Effects) -> Vec<Arc<Hold>> {
        queue.holders.iter().map(|holder| holder.hold.clone()).collect()
    }
}

/// The client closes: its waiters end.
pub(crate) struct Close;

/// The claims of a client that closes. All are to be released.
pub(crate) struct Closed {
    /// Claims that guards hold.
    pub(crate) held: Vec<Arc<Hold>>,
    pub(crate) lingering: Vec<Arc<Hold>>,
}

impl Event for Close {
    type Reply = Closed;

    fn apply(self, queue: &mut KeyQueue, _: Instant, effects: &mut Effects) -> Closed {
        queue.notify_poller(effects);
        queue.phase = Phase::Closed;
        queue.asking.clear();
        let contention = queue.contention.take();
        for waiter in contention
            .into_iter()
            .flat_map(|contention| contention.waiters.into_iter())
        {
            match waiter.state {
                WaiterState::Calling(waker) | WaiterState::Waiting(waker) => effects.wakes.extend(waker),
                _ => {}
            }
            if let Route::Store(signal) = waiter.route {
                effects.notify.push(signal);
            }
        }
        let (lingering, held): (Vec<_>, Vec<_>) = mem::take(&mut queue.holders)
            .into_iter()
            .partition(Holder::lingers);
        let holds = |holders: Vec<Holder>| holders.into_iter().map(|holder| holder.hold).collect();
        Closed {
            held: holds(held),
            lingering: holds(lingering),
        }
    }
}
