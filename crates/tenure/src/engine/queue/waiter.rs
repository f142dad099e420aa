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

/// The place of a waiter among the waiters of its key. Smaller goes first. No place is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaiterId(i64);

/// Where the places of a key's waiters come from.
#[derive(Debug, Default)]
pub(crate) struct Places {
    last: i64,
    first: i64,
}

impl Places {
    /// A place behind all others.
    pub(crate) fn last(&mut self) -> WaiterId {
        self.last += 1;
        WaiterId(self.last)
    }

    /// A place before all others.
    pub(crate) fn first(&mut self) -> WaiterId {
        self.first -= 1;
        WaiterId(self.first)
    }
}

/// One caller that waits, or whose call was adopted.
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
    /// In this queue: the client asks the store for one local waiter after the other.
    Local,
    /// In the store's queue, with a claim and a poller of its own. The poller is notified when the waiter leaves.
    Store(Arc<Notify>),
    /// Its own call is in flight.
    Call,
}

/// The states of a waiter. It leaves the queue when its caller takes a grant or an error, or is dropped.
///
/// ```text
///   Calling --granted--> Offered --polled--> (holds)
///      |  \--refused--> Waiting --offered--> Offered
///      |                   ^                    | not polled within the offer window
///      | dropped           +----- polled ---- Missed
///      v
///     Left --answered--> (gone)
/// ```
#[derive(Debug)]
pub(crate) enum WaiterState {
    /// A task polls its call; the caller waits for the outcome.
    Calling(Option<Waker>),
    /// Its call is in flight, and the caller was dropped: the claim is released when the call ends.
    Left,
    /// It waits for a grant.
    Waiting(Option<Waker>),
    /// A grant belongs to it, if it is polled in time.
    Offered(Offer),
    /// It was not polled in time: it gets no offer until it is polled.
    Missed,
    /// It ends with this: `Ok` says that a try was refused.
    Answered(Result<(), Error>),
}

/// A grant on its way to a waiter.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) hold: Arc<Hold>,
    /// The number of the grant within the claim's run, from 0.
    pub(crate) nth: u32,
    /// The grant was handed over in memory: it must be returned within the handover window.
    pub(crate) handed_over: bool,
    pub(crate) at: Instant,
}

/// Waiters in the order of their places.
#[derive(Debug, Default)]
pub(crate) struct Waiters(VecDeque<Waiter>);

impl Waiters {
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

    /// The first waiter that waits for a grant of this client.
    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.0.iter().find(|waiter| waiter.is_next())
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut Waiter> {
        self.0.iter_mut().find(|waiter| waiter.is_next())
    }

    /// Number of waiters that wait for a grant of this client.
    pub(crate) fn local(&self) -> usize {
        self.0.iter().filter(|waiter| waiter.is_next()).count()
    }

    /// A waiter that has not taken its offer within `window`.
    pub(crate) fn overdue(&self, now: Instant, window: Duration) -> Option<WaiterId> {
        let is_overdue = |waiter: &&Waiter| match &waiter.state {
            WaiterState::Offered(offer) => now - offer.at >= window,
            _ => false,
        };
        self.0.iter().find(is_overdue).map(|waiter| waiter.id)
    }

    pub(crate) fn has_offers(&self) -> bool {
        let is_offered = |waiter: &Waiter| matches!(waiter.state, WaiterState::Offered(_));
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
    /// Whether it waits for a grant of this client.
    pub(crate) fn is_next(&self) -> bool {
        matches!(self.route, Route::Local) && matches!(self.state, WaiterState::Waiting(_))
    }

    pub(super) fn offer(&mut self, offer: Offer, effects: &mut Effects) {
        self.set(WaiterState::Offered(offer), effects);
    }

    /// Changes the state of a waiter, and wakes its caller.
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
        let is_fresh = !self.handed_over || now - self.hold.confirmed() < HANDOVER_WINDOW;
        is_fresh && now < self.hold.deadline()
    }
}
