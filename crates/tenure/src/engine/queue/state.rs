//! The state machine of one key: holders, waiters, and whose turn it is. It reads no clock and does no I/O: time and events
//! come in, effects go out. The page in `mod.rs` explains the algorithm.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tenure_backend::{Instant, Mode};

use super::effects::{Effects, PollerEffect};
use super::policy::{HandoverPolicy, PolicyLimits};
use super::waiter::{Places, Route, Waiter, WaiterId, WaiterState, Waiters};
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;
use crate::engine::tasks::Releases;

/// The settings of the client, and the properties of its store, that a queue depends on.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Whether claims are handed over in memory.
    pub(crate) local_handover: bool,
    /// How long an offered grant waits for its waiter to be polled.
    pub(crate) offer_window: Duration,
    pub(crate) policy: PolicyLimits,
    pub(crate) releases: Releases,
}

#[derive(Debug)]
pub(crate) struct KeyQueue {
    pub(super) rules: Arc<Rules>,
    pub(super) phase: Phase,
    pub(super) holders: SmallVec<[Holder; 1]>,
    /// Waiting callers whose own call is in flight.
    pub(super) asking: SmallVec<[WaiterId; 1]>,
    pub(super) places: Places,
    /// Number of grants of the last run that ended in a lingering claim.
    pub(super) last_run: u32,
    /// Whether a task waits for the end of a lingering claim.
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

/// A hold of this client, and the request that it serves.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) hold: Arc<Hold>,
    pub(super) request: LockRequest,
    /// Number of grants of the run that callers got.
    pub(super) grants: u32,
    /// The time until which the claim lingers: its holder has unlocked it, and the next local caller may get it.
    pub(super) lingers_until: Option<Instant>,
}

/// The part of a queue that exists only while callers wait.
#[derive(Debug)]
pub(super) struct Contention {
    pub(super) waiters: Waiters,
    pub(super) policy: HandoverPolicy,
    /// Time of the last request about a holder whose lease is not renewed.
    pub(super) asked_about: Instant,
    pub(super) watch: OfferWatch,
}

/// How the poller checks for offers that are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferWatch {
    /// The poller looks within the offer window. An offer was made after its last look.
    Busy,
    /// The poller looks within the offer window. No offer was made after its last look.
    Quiet,
    /// The poller sleeps until it is notified of the next offer.
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

    /// Whether the holds of this client admit another claim of that mode. Forgets holds whose local deadline has passed.
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

    /// Whether no local waiter is ahead of a new caller.
    pub(super) fn is_quiet(&self) -> bool {
        self.phase != Phase::HandingOver
            && self.contention.as_ref().is_none_or(|contention| {
                contention.waiters.first().is_none() && !contention.waiters.has_offers()
            })
    }

    /// Notifies the poller, and starts it if it does not run.
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

    /// Notifies the poller, if it runs.
    pub(super) fn notify_poller(&self, effects: &mut Effects) {
        if matches!(self.phase, Phase::Polling | Phase::HandingOver) {
            effects.notify_poller();
        }
    }

    /// Makes the poller check an offer that was just made.
    pub(super) fn watch_offer(&mut self, effects: &mut Effects) {
        let was = mem::replace(&mut self.contention().watch, OfferWatch::Busy);
        match self.phase {
            Phase::Idle => self.wake_poller(effects),
            _ if was == OfferWatch::Asleep => effects.notify_poller(),
            _ => {}
        }
    }

    /// The waiter with that ID.
    pub(super) fn waiter(&mut self, id: WaiterId) -> Option<&mut Waiter> {
        self.contention.as_mut()?.waiters.get_mut(id)
    }

    /// Whether no state of former waiters is left.
    #[cfg(all(test, feature = "testing"))]
    pub(super) fn is_at_rest(&self) -> bool {
        self.phase == Phase::Idle
            && self.contention.is_none()
            && self.asking.is_empty()
            && self.holders.is_empty()
    }

    /// Drops the contention state when the last waiter has left.
    pub(super) fn tidy(&mut self) {
        let is_empty = |contention: &Contention| contention.waiters.is_empty();
        if self.phase == Phase::Idle && self.contention.as_deref().is_some_and(is_empty) {
            self.contention = None;
        }
    }
}

/// Something that happens to a key.
pub(crate) trait Event {
    type Reply;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Self::Reply;
}

/// The client closes: its waiters end.
pub(crate) struct Close;

/// The claims of a closing client. All must be released.
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
        let waiters = contention.map(|contention| contention.waiters);
        for mut waiter in waiters.into_iter().flat_map(Waiters::into_iter) {
            waiter.set(WaiterState::Left, effects);
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
