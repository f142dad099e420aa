//! The events of a key: what callers, calls, holders, the poller and the store report to its queue.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tenure_backend::{Instant, Mode};
use tokio::sync::Notify;

use super::state::{Effects, Event, Exit, Granted, Holder, KeyQueue, Look, Phase, SuccessorRequest};
use super::waiter::{Offer, Route, Waiter, WaiterId, WaiterState, Waiters};
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;
use crate::error::Error;

/// A caller arrives.
pub(crate) struct Arrived<'a> {
    pub(crate) request: &'a LockRequest,
    pub(crate) kind: CallerKind,
    pub(crate) waker: &'a Waker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerKind {
    /// It waits in this queue.
    Waits,
    /// It only tries.
    Tries,
    /// It queues in the store.
    Queues,
}

#[derive(Debug)]
pub(crate) enum Arrival {
    /// The caller asks the store itself with a claim of that many grants, and reports the answer under this name.
    Ask(WaiterId, u32),
    /// The caller has the claim that lingered, with that grant of its run.
    Held(Arc<Hold>, u32),
    /// The caller waits.
    Wait(WaiterId),
    /// This client holds the key: a try fails without I/O.
    Busy,
    Closed,
}

impl Event for Arrived<'_> {
    type Reply = Arrival;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Arrival {
        if queue.is_closed() {
            return Arrival::Closed;
        }
        if let Some((hold, nth)) = queue.take_lingering(now, self.request, effects) {
            return Arrival::Held(hold, nth);
        }
        let reserve = queue.own_reserve(self.request);
        if self.kind == CallerKind::Queues {
            return Arrival::Ask(queue.places.first(), 1);
        }
        let is_free = queue.admits(now, self.request.mode);
        if self.kind == CallerKind::Tries {
            return match is_free {
                true => Arrival::Ask(queue.places.first(), reserve),
                false => Arrival::Busy,
            };
        }
        if is_free && queue.is_quiet() && (queue.asking.is_empty() || self.request.is_shared()) {
            let id = queue.places.first();
            queue.asking.push(id);
            return Arrival::Ask(id, reserve);
        }
        let id = queue.places.last();
        queue.contention().waiters.insert(Waiter {
            id,
            request: self.request.clone(),
            arrived: now,
            route: Route::Local,
            state: WaiterState::Waiting(Some(self.waker.clone())),
        });
        if is_free || queue.phase == Phase::Idle {
            queue.wake_poller(effects);
        }
        Arrival::Wait(id)
    }
}

/// A caller's own call has ended.
pub(crate) struct CallEnded<'a> {
    pub(crate) id: WaiterId,
    pub(crate) request: &'a LockRequest,
    pub(crate) outcome: CallOutcome,
}

#[derive(Debug)]
pub(crate) enum CallOutcome {
    Granted(Arc<Hold>),
    /// It waits in this queue.
    Waits,
    /// It waits in the store's queue. Its poller is notified when it leaves.
    Queued(Arc<Notify>),
    /// It ends: `Ok` says that a try was refused.
    Ended(Result<(), Error>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallReply {
    Accepted,
    /// The caller was dropped: the claim is to be released.
    Left,
    /// The client was closed: the claim is to be released.
    Closed,
}

impl Event for CallEnded<'_> {
    type Reply = CallReply;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> CallReply {
        queue.asking.retain(|id| *id != self.id);
        if queue.is_closed() {
            return CallReply::Closed;
        }
        let waiters = queue
            .contention
            .as_mut()
            .map(|contention| &mut contention.waiters);
        let state = waiters
            .and_then(|waiters| waiters.get_mut(self.id))
            .map(|waiter| &waiter.state);
        if matches!(state, Some(WaiterState::Left)) {
            queue.contention().waiters.remove(self.id);
            queue.tidy();
            queue.notify_poller(effects);
            return CallReply::Left;
        }
        // Without a waiter the caller itself polls the call, and reads the outcome from it.
        let was_adopted = state.is_some();
        match self.outcome {
            CallOutcome::Granted(hold) => {
                queue.hold(hold.clone(), self.request.clone());
                if let Some(waiter) = queue.adopted(was_adopted, self.id) {
                    waiter.offer(Offer::new(hold, now), effects);
                    queue.watch_offer(effects);
                }
                // The poller need not ask: the key belongs to this client.
                queue.notify_poller(effects);
            }
            CallOutcome::Waits => {
                queue.contention().policy.refused();
                queue.wait(self.id, self.request, now, Route::Local, effects);
                queue.wake_poller(effects);
            }
            CallOutcome::Queued(signal) => {
                queue.wait(self.id, self.request, now, Route::Store(signal), effects);
                queue.notify_poller(effects);
            }
            CallOutcome::Ended(result) => {
                if let Some(waiter) = queue.adopted(was_adopted, self.id) {
                    waiter.set(WaiterState::Answered(result), effects);
                }
                queue.notify_poller(effects);
            }
        }
        CallReply::Accepted
    }
}

/// A task adopts a caller's own call. The caller may have gone.
pub(crate) struct CallAdopted<'a> {
    pub(crate) id: WaiterId,
    pub(crate) request: &'a LockRequest,
    pub(crate) kind: CallerKind,
    pub(crate) waker: Option<Waker>,
}

impl Event for CallAdopted<'_> {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, now: Instant, _: &mut Effects) {
        if queue.is_closed() {
            return;
        }
        let waiters = &mut queue.contention().waiters;
        if waiters.get_mut(self.id).is_none() {
            waiters.insert(Waiter {
                id: self.id,
                request: self.request.clone(),
                arrived: now,
                route: match self.kind {
                    CallerKind::Waits => Route::Local,
                    CallerKind::Tries | CallerKind::Queues => Route::Call,
                },
                state: WaiterState::Calling(self.waker),
            });
        }
    }
}

/// A caller polls.
pub(crate) struct Polled<'a> {
    pub(crate) id: WaiterId,
    pub(crate) waker: &'a Waker,
}

/// What a caller finds when it polls.
#[derive(Debug)]
pub(crate) enum PollReply {
    /// Its own call is in flight.
    Calling,
    Waiting,
    /// It holds the key, with that grant of the run.
    Held(Arc<Hold>, u32),
    /// It missed an offer, and must ask again.
    Missed,
    /// It only tried, and was refused.
    Refused,
    Failed(Error),
    Closed,
}

impl Event for Polled<'_> {
    type Reply = PollReply;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> PollReply {
        if queue.is_closed() {
            return PollReply::Closed;
        }
        let waiters = &mut queue.contention().waiters;
        let Some(waiter) = waiters.get_mut(self.id) else {
            return PollReply::Missed;
        };
        match &mut waiter.state {
            WaiterState::Calling(waker) => {
                renew_waker(waker, self.waker);
                return PollReply::Calling;
            }
            WaiterState::Waiting(waker) => {
                renew_waker(waker, self.waker);
                return PollReply::Waiting;
            }
            WaiterState::Missed if matches!(waiter.route, Route::Local) => {
                waiter.state = WaiterState::Waiting(Some(self.waker.clone()));
                queue.wake_poller(effects);
                return PollReply::Waiting;
            }
            _ => {}
        }
        let Some(waiter) = waiters.remove(self.id) else {
            return PollReply::Missed;
        };
        let reply = match waiter.state {
            WaiterState::Offered(offer) if offer.is_good(now) => PollReply::Held(offer.hold, offer.nth),
            WaiterState::Offered(offer) => {
                let is_local = matches!(waiter.route, Route::Local);
                if is_local {
                    queue.contention().waiters.insert(Waiter {
                        state: WaiterState::Waiting(Some(self.waker.clone())),
                        ..waiter
                    });
                    queue.wake_poller(effects);
                }
                queue.give_up(now, &offer.hold, effects);
                if is_local {
                    PollReply::Waiting
                } else {
                    PollReply::Missed
                }
            }
            WaiterState::Answered(Ok(())) => PollReply::Refused,
            WaiterState::Answered(Err(error)) => PollReply::Failed(error),
            WaiterState::Missed | WaiterState::Left | WaiterState::Waiting(_) | WaiterState::Calling(_) => {
                PollReply::Missed
            }
        };
        queue.tidy();
        reply
    }
}

fn renew_waker(waker: &mut Option<Waker>, with: &Waker) {
    if !waker.as_ref().is_some_and(|waker| waker.will_wake(with)) {
        *waker = Some(with.clone());
    }
}

/// A caller was dropped, or its time limit has passed.
pub(crate) struct CallerLeft<'a> {
    pub(crate) id: WaiterId,
    pub(crate) request: &'a LockRequest,
    /// Its own call is in flight, and was not adopted.
    pub(crate) is_calling: bool,
}

impl Event for CallerLeft<'_> {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) {
        if queue.is_closed() {
            return;
        }
        queue.asking.retain(|id| *id != self.id);
        let is_calling = self.is_calling;
        let waiters = &mut queue.contention().waiters;
        match waiters.remove(self.id) {
            None if !is_calling => {}
            None => waiters.insert(Waiter {
                id: self.id,
                request: self.request.clone(),
                arrived: now,
                route: Route::Call,
                state: WaiterState::Left,
            }),
            Some(waiter) => match waiter.state {
                WaiterState::Calling(_) | WaiterState::Left => waiters.insert(Waiter {
                    state: WaiterState::Left,
                    ..waiter
                }),
                WaiterState::Offered(offer) => queue.give_up(now, &offer.hold, effects),
                WaiterState::Waiting(_) => {
                    if let Route::Store(signal) = waiter.route {
                        effects.notify.push(signal);
                    }
                }
                WaiterState::Missed | WaiterState::Answered(_) => {}
            },
        }
        queue.tidy();
        queue.notify_poller(effects);
    }
}

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
        let waiters = &mut queue.contention().waiters;
        let waiter = waiters.get_mut(self.id);
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
        if let Some(contention) = &mut queue.contention
            && let Some(waiter) = contention.waiters.get_mut(self.id)
        {
            waiter.set(WaiterState::Answered(Err(self.error)), effects);
        }
    }
}

/// Whether a fair waiter waits.
pub(crate) struct IsWaiting(pub(crate) WaiterId);

impl Event for IsWaiting {
    type Reply = bool;

    fn apply(self, queue: &mut KeyQueue, _: Instant, _: &mut Effects) -> bool {
        let waiters = queue
            .contention
            .as_mut()
            .map(|contention| &mut contention.waiters);
        let waiter = waiters.and_then(|waiters| waiters.get_mut(self.0));
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
        let waiters = queue
            .contention
            .as_mut()
            .map(|contention| &mut contention.waiters);
        let waiter = waiters.and_then(|waiters| waiters.get_mut(self.id));
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
