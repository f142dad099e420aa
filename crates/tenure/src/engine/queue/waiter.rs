//! The waiters of one key: their order and their states.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tenure_backend::{HANDOVER_WINDOW, Instant};
use tokio::sync::Notify;

use super::effects::Effects;
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;
use crate::error::Error;

/// The position of a waiter, and its ID, among the waiters of its key. Smaller numbers go first. No number is
/// used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(i64);

/// Assigns positions to the waiters of a key.
#[derive(Debug, Default)]
pub(crate) struct Places {
    last: i64,
    first: i64,
}

impl Places {
    /// A new position behind all others.
    pub(crate) fn last(&mut self) -> WaiterId {
        self.last += 1;
        WaiterId(self.last)
    }

    /// A new position before all others.
    pub(crate) fn first(&mut self) -> WaiterId {
        self.first -= 1;
        WaiterId(self.first)
    }
}

/// A caller that waits for a grant, or whose call a task has adopted (taken over).
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) id: WaiterId,
    pub(crate) request: LockRequest,
    pub(crate) arrived: Instant,
    pub(crate) route: Route,
    pub(crate) state: WaiterState,
}

/// Where a waiter waits for its grant.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// In this client's queue, whose poller asks the store for one waiter at a time.
    Local,
    /// In the store's queue, with a poller of its own, which this signal wakes when the waiter leaves.
    Store(Arc<Notify>),
    /// In no queue: the waiter's own call is in flight.
    Call,
}

/// The states of a waiter, until its caller takes the grant or another result, or leaves.
///
/// ```text
///   Calling --granted--> Offered --polled--> (holds)
///      |  \--refused--> Waiting --offered--> Offered
///      |                   ^                    | not polled within the offer window
///      | dropped           +----- polled ---- Missed
///      v
///     Left --answered--> (gone)
///
///   Waiting --invited--> Invited --polled--> (the caller calls the store itself)
///                           | not polled within the offer window
///                         Missed
/// ```
#[derive(Debug)]
pub(crate) enum WaiterState {
    /// A task polls the waiter's call; the caller waits for the outcome.
    Calling(Option<Waker>),
    /// The waiter's call is in flight, but its caller was dropped or its time limit has passed. The claim is released
    /// when the call ends.
    Left,
    /// The waiter waits for a grant. The waker is that of the last poll.
    Waiting(Option<Waker>),
    /// A grant is reserved for the waiter, which must be polled in time to take it.
    Offered(Offer),
    /// Invited at this time, because a grant admits the waiter's claim too: at its next poll the caller calls the
    /// store itself.
    Invited(Instant),
    /// The waiter was not polled in time to take its offer or invitation, and gets no other until it is polled.
    Missed,
    /// The caller gets this result at its next poll. `Ok`: the call was a try (such as `try_lock`) and was refused.
    Answered(Result<(), Error>),
}

/// A grant that is reserved for a waiter until it is polled or the offer expires.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) hold: Arc<Hold>,
    /// Index, from 0, of the grant's token among those that the claim reserved.
    pub(crate) nth: u32,
    /// True for a local hand-over: the offer then expires `HANDOVER_WINDOW` after the store last confirmed the claim.
    pub(crate) handed_over: bool,
    pub(crate) at: Instant,
}

/// Waiters in the order of their positions.
#[derive(Debug, Default)]
pub(crate) struct Waiters(VecDeque<Waiter>);

impl Waiters {
    /// Adds a waiter that arrived at `now`.
    pub(crate) fn add(
        &mut self,
        id: WaiterId,
        request: &LockRequest,
        now: Instant,
        route: Route,
        state: WaiterState,
    ) {
        self.insert(Waiter {
            id,
            request: request.clone(),
            arrived: now,
            route,
            state,
        });
    }

    pub(crate) fn insert(&mut self, waiter: Waiter) {
        let at = self.0.partition_point(|other| other.id < waiter.id);
        self.0.insert(at, waiter);
    }

    fn position(&self, id: WaiterId) -> Option<usize> {
        self.0.binary_search_by_key(&id, |waiter| waiter.id).ok()
    }

    pub(crate) fn get_mut(&mut self, id: WaiterId) -> Option<&mut Waiter> {
        let at = self.position(id)?;
        self.0.get_mut(at)
    }

    pub(crate) fn remove(&mut self, id: WaiterId) -> Option<Waiter> {
        let at = self.position(id)?;
        self.0.remove(at)
    }

    /// The local waiters that can be offered a grant, in order.
    pub(crate) fn next(&self) -> impl Iterator<Item = &Waiter> {
        self.0.iter().filter(|waiter| waiter.is_next())
    }

    /// The first local waiter that can be offered a grant.
    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.next().next()
    }

    /// As [`next`](Self::next), to change them.
    pub(crate) fn next_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.0.iter_mut().filter(|waiter| waiter.is_next())
    }

    /// Number of local waiters with this request that are in front of the first waiter with another request.
    pub(crate) fn in_front(&self, request: &LockRequest) -> u32 {
        let waiters = self.next().take_while(|waiter| waiter.request == *request);
        u32::try_from(waiters.count()).unwrap_or(u32::MAX)
    }

    /// The first waiter that was offered a grant, or invited, and was not polled within `window`.
    pub(crate) fn overdue(&self, now: Instant, window: Duration) -> Option<WaiterId> {
        let is_overdue = |waiter: &&Waiter| match &waiter.state {
            WaiterState::Offered(Offer { at, .. }) | WaiterState::Invited(at) => now - *at >= window,
            _ => false,
        };
        self.0.iter().find(is_overdue).map(|waiter| waiter.id)
    }

    /// Whether a waiter has an offer or an invitation.
    pub(crate) fn has_offers(&self) -> bool {
        let is_offered =
            |waiter: &Waiter| matches!(waiter.state, WaiterState::Offered(_) | WaiterState::Invited(_));
        self.0.iter().any(is_offered)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = Waiter> {
        self.0.into_iter()
    }
}

impl Waiter {
    /// Whether this waiter can be offered a grant: it waits in this queue, and missed no offer.
    pub(crate) fn is_next(&self) -> bool {
        matches!(self.route, Route::Local) && matches!(self.state, WaiterState::Waiting(_))
    }

    pub(super) fn offer(&mut self, offer: Offer, effects: &mut Effects) {
        self.set(WaiterState::Offered(offer), effects);
    }

    /// Changes the waiter's state, and wakes its caller.
    pub(super) fn set(&mut self, state: WaiterState, effects: &mut Effects) {
        if let WaiterState::Waiting(waker) | WaiterState::Calling(waker) =
            mem::replace(&mut self.state, state)
        {
            effects.wakes.extend(waker);
        }
    }
}

impl Offer {
    /// An offer of a grant that came from the store, not from a local holder.
    pub(super) fn new(hold: Arc<Hold>, at: Instant) -> Self {
        Offer {
            hold,
            nth: 0,
            handed_over: false,
            at,
        }
    }

    /// Whether the offer is valid: before the local deadline, and, for a local hand-over, within 10 ms of the
    /// last confirmation by the store.
    pub(super) fn is_good(&self, now: Instant) -> bool {
        let is_fresh = !self.handed_over || now - self.hold.fresh_from() < HANDOVER_WINDOW;
        is_fresh && now < self.hold.deadline()
    }
}
