//! The events of callers: a caller arrives, its call ends or is adopted, it polls, it leaves.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use tenure_backend::{Claim, Fairness, Instant};
use tokio::sync::Notify;

use super::effects::{Effects, ReleaseOrder, Standing};
use super::linger::Lingering;
use super::state::{Event, KeyQueue, Phase};
use super::waiter::{Offer, Route, Waiter, WaiterId, WaiterState};
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;
use crate::error::Error;

/// Queue event: a new caller arrives.
pub(crate) struct Arrived<'a> {
    pub(crate) request: &'a LockRequest,
    pub(crate) kind: CallerKind,
    pub(crate) waker: &'a Waker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerKind {
    /// An unfair caller, which waits in this client's queue.
    Waits,
    /// An unfair caller that fails instead of waiting.
    Tries,
    /// A fair caller, which waits in the store's queue, or only tries.
    Queues,
}

impl CallerKind {
    pub(crate) fn of(fairness: Fairness, tries: bool) -> Self {
        match fairness {
            Fairness::Fifo => CallerKind::Queues,
            Fairness::Unfair if tries => CallerKind::Tries,
            Fairness::Unfair => CallerKind::Waits,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Arrival {
    /// The caller calls the store itself, and reports the outcome as [`CallEnded`].
    Ask(Ask),
    /// The caller gets a lingering claim (kept after its unlock), with the reserved token of this index.
    Held(Arc<Hold>, u32),
    /// The caller waits in this queue.
    Wait(WaiterId),
    /// This client's own holds exclude the request: the try fails without I/O.
    Busy,
    Closed,
}

/// What a caller needs for its own call to the store.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) id: WaiterId,
    /// Number of tokens that the caller's claim reserves.
    pub(crate) reserve: u32,
    /// A lingering claim (kept after its unlock), which must be released before the call.
    pub(crate) after: Option<ReleaseOrder>,
}

impl Event for Arrived<'_> {
    type Reply = Arrival;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Arrival {
        if queue.is_closed() {
            return Arrival::Closed;
        }
        let after = match queue.take_lingering(now, self.request, effects) {
            Lingering::None => None,
            Lingering::Taken(hold, nth) => return Arrival::Held(hold, nth),
            Lingering::Released(order) => Some(order),
        };
        let reserve = queue.own_reserve(self.request);
        let ask = |id, after| Arrival::Ask(Ask { id, reserve, after });
        if self.kind == CallerKind::Queues {
            return ask(queue.places.first(), after);
        }
        let is_free = queue.admits(now, self.request.mode);
        if self.kind == CallerKind::Tries {
            if is_free {
                return ask(queue.places.first(), after);
            }
            effects.releases.extend(after);
            return Arrival::Busy;
        }
        if is_free && queue.is_quiet() && (queue.asking.is_empty() || self.request.is_shared()) {
            // If it has to wait, it waits behind those that asked before it.
            let id = queue.places.last();
            queue.asking.push(id);
            return ask(id, after);
        }
        effects.releases.extend(after);
        let id = queue.places.last();
        let state = WaiterState::Waiting(Some(self.waker.clone()));
        let waiters = &mut queue.contention().waiters;
        waiters.add(id, self.request, now, Route::Local, state);
        if is_free || queue.phase == Phase::Idle {
            queue.wake_poller(effects);
        }
        Arrival::Wait(id)
    }
}

/// Queue event: a caller's own call has ended.
pub(crate) struct CallEnded<'a> {
    pub(crate) id: WaiterId,
    pub(crate) request: &'a LockRequest,
    pub(crate) outcome: CallOutcome,
}

#[derive(Debug)]
pub(crate) enum CallOutcome {
    Granted(Arc<Hold>),
    /// The store did not grant the claim; the caller waits in this client's queue. `Some`: the claim may stand in the
    /// store's queue, and the poller goes on with it.
    Waits(Option<Arc<Claim>>),
    /// The caller waits in the store's queue. When it leaves, this signal ends its poller.
    Queued(Arc<Notify>),
    /// No grant: an error, or `Ok` if a try was refused.
    Ended(Result<(), Error>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallReply {
    Accepted,
    /// The caller was dropped, or its time limit has passed: its claim must be released.
    Left,
    /// The client was closed: the caller's claim must be released.
    Closed,
}

impl Event for CallEnded<'_> {
    type Reply = CallReply;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> CallReply {
        queue.asking.retain(|id| *id != self.id);
        if queue.is_closed() {
            return CallReply::Closed;
        }
        let state = queue.waiter(self.id).map(|waiter| &waiter.state);
        if matches!(state, Some(WaiterState::Left)) {
            queue.contention().waiters.remove(self.id);
            queue.tidy();
            queue.notify_poller(effects);
            return CallReply::Left;
        }
        // A call has a waiter entry if a task adopted it. Otherwise its caller polls it and sees the outcome.
        let was_adopted = state.is_some();
        match self.outcome {
            CallOutcome::Granted(hold) => {
                queue.hold(now, hold.clone(), self.request.clone());
                if let Some(waiter) = queue.waiter(self.id).filter(|_| was_adopted) {
                    waiter.offer(Offer::new(hold.clone(), now), effects);
                    queue.watch_offer(effects);
                }
                queue.share(now, &hold, effects);
                queue.invite(now, effects);
            }
            CallOutcome::Waits(placed) => {
                // If this client holds the key itself, the refusal does not show that another client wants it.
                if queue.holders.is_empty() {
                    queue.contention().policy.refused();
                }
                queue.wait(self.id, self.request, now, Route::Local, effects);
                if let Some(claim) = placed {
                    let request = self.request.clone();
                    let standing = Some(Standing { claim, request });
                    let before = mem::replace(&mut queue.contention().standing, standing);
                    effects.withdraw = before.map(|before| before.claim);
                }
                queue.wake_poller(effects);
            }
            CallOutcome::Queued(signal) => {
                queue.wait(self.id, self.request, now, Route::Store(signal), effects);
            }
            CallOutcome::Ended(result) => {
                if let Some(waiter) = queue.waiter(self.id).filter(|_| was_adopted) {
                    waiter.set(WaiterState::Answered(result), effects);
                }
            }
        }
        // The poller must check again: this call is over, and this client may hold the key now.
        queue.notify_poller(effects);
        CallReply::Accepted
    }
}

/// Queue event: a task adopts (takes over) the call of a caller, because the caller was dropped, the call takes
/// longer than the offer window, or the client closes.
pub(crate) struct CallAdopted<'a> {
    pub(crate) id: WaiterId,
    pub(crate) request: &'a LockRequest,
    pub(crate) kind: CallerKind,
    pub(crate) waker: Option<Waker>,
}

impl Event for CallAdopted<'_> {
    /// The caller's waker, if the caller must poll again because the client was closed.
    type Reply = Option<Waker>;

    fn apply(self, queue: &mut KeyQueue, now: Instant, _: &mut Effects) -> Option<Waker> {
        if queue.is_closed() {
            return self.waker;
        }
        let waiters = &mut queue.contention().waiters;
        if waiters.get_mut(self.id).is_none() {
            let route = match self.kind {
                CallerKind::Waits => Route::Local,
                CallerKind::Tries | CallerKind::Queues => Route::Call,
            };
            let state = WaiterState::Calling(self.waker);
            waiters.add(self.id, self.request, now, route, state);
        }
        None
    }
}

/// Queue event: a waiting caller polls.
pub(crate) struct Polled<'a> {
    pub(crate) id: WaiterId,
    pub(crate) waker: &'a Waker,
}

#[derive(Debug)]
pub(crate) enum PollReply {
    /// The caller still waits: for a grant, or for its call to the store, which a task took over.
    Waiting,
    /// The caller holds the key, with the reserved token of this index.
    Held(Arc<Hold>, u32),
    /// The caller was invited: it calls the store itself, and reports the outcome as [`CallEnded`].
    Ask(Ask),
    /// A fair caller, or one that only tries, missed an offer: it must begin again.
    Missed,
    /// The caller only tried, and was refused.
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
            WaiterState::Calling(waker) | WaiterState::Waiting(waker) => {
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
                let reply = if matches!(waiter.route, Route::Local) {
                    queue.contention().waiters.insert(Waiter {
                        state: WaiterState::Waiting(Some(self.waker.clone())),
                        ..waiter
                    });
                    queue.wake_poller(effects);
                    PollReply::Waiting
                } else {
                    PollReply::Missed
                };
                queue.give_up(now, &offer.hold, effects);
                reply
            }
            WaiterState::Invited(_) => PollReply::Ask(Ask {
                id: self.id,
                reserve: queue.contention().policy.reserve(),
                after: None,
            }),
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

/// Queue event: a caller was dropped, or its time limit has passed.
pub(crate) struct CallerLeft<'a> {
    pub(crate) id: WaiterId,
    pub(crate) request: &'a LockRequest,
    /// Whether the caller's own call is in flight, and no task has adopted it.
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
            None => waiters.add(self.id, self.request, now, Route::Call, WaiterState::Left),
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
                WaiterState::Invited(_) | WaiterState::Missed | WaiterState::Answered(_) => {}
            },
        }
        queue.tidy();
        queue.notify_poller(effects);
    }
}

impl KeyQueue {
    /// Records that a caller waits after its own call, in this queue or in the store's.
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
                // Wakes the caller, so that it can call its `on_waiting` callback.
                effects.wakes.extend(waker);
            }
        } else {
            waiters.add(id, request, now, route, WaiterState::Waiting(None));
        }
    }
}
