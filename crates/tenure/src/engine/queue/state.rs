//! The state machine of one key: holders, waiters, and whether the poller runs. It reads no clock and does no I/O:
//! events come in with their times, effects go out. `mod.rs` explains the algorithm.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tenure_backend::{Instant, Mode};

use super::effects::{Effects, PollerEffect, Standing};
use super::policy::{HandoverPolicy, PolicyLimits};
use super::waiter::{Places, Route, Waiter, WaiterId, WaiterState, Waiters};
use crate::engine::hold::Hold;
use crate::engine::request::Options;
use crate::engine::tasks::Releases;

/// The settings of a client, and the properties of its store, on which a queue depends.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Whether an unlocked claim may go to a local waiter in memory.
    pub(crate) local_handover: bool,
    /// Time in which a waiter must take an offered grant. After that, the claim is passed on as after an unlock.
    pub(crate) offer_window: Duration,
    pub(crate) policy: PolicyLimits,
    pub(crate) releases: Releases,
}

#[derive(Debug)]
pub(crate) struct KeyQueue {
    pub(super) rules: Arc<Rules>,
    pub(super) phase: Phase,
    pub(super) holders: SmallVec<[Holder; 1]>,
    /// Callers, except tries and fair ones, that make their own call to the store or are invited to. The poller does
    /// not ask meanwhile.
    pub(super) asking: SmallVec<[WaiterId; 1]>,
    pub(super) places: Places,
    /// Number of grants of the claim that ended last. With the `linger` option, the next claim
    /// reserves twice as many tokens.
    pub(super) last_run: u32,
    /// Whether a task waits to release an unlocked claim that is kept for the next local caller.
    pub(super) has_linger_timer: bool,
    pub(super) contention: Option<Box<Contention>>,
}

/// State of the poller, the task that asks the store on behalf of waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Polling,
    /// The poller pauses: a release that asks the store to grant the key to a local waiter is in flight.
    HandingOver,
    Closed,
}

/// A claim of this client that was granted.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) hold: Arc<Hold>,
    /// The options of the request that the claim serves. The hold has its mode.
    pub(super) options: Arc<Options>,
    /// Number of grants of the claim: one by the store, one for each local hand-over.
    pub(super) grants: u32,
    /// Number of callers that have the claim, or an offer of it: 1, unless readers share the claim.
    pub(super) sharers: u32,
    /// `Some` after an unlock: the client keeps the claim until this time.
    pub(super) lingers_until: Option<Instant>,
}

/// The part of a queue that exists only while the queue has waiters or the poller runs.
#[derive(Debug)]
pub(super) struct Contention {
    pub(super) waiters: Waiters,
    pub(super) policy: HandoverPolicy,
    /// The claim of a caller's own call that did not get the key, until the poller's next look: the poller asks for it or
    /// withdraws it. It may stand in the store's queue, and the store grants the key to no later claim of this client.
    pub(super) standing: Option<Standing>,
    /// Last time that the poller asked the store whether a holder was evicted. It asks only about holders whose
    /// leases are not renewed.
    pub(super) asked_about: Instant,
    pub(super) watch: OfferWatch,
}

/// Whether the poller will check for offers that were not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfferWatch {
    /// The poller checks for offers within the offer window. An offer was made after its last check.
    Busy,
    /// The poller checks for offers within the offer window, then sleeps. No offer was made after its last check.
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

    /// Applies an event. Returns the reply, and the effects to carry out after the queue is unlocked.
    pub(crate) fn on<E: Event>(&mut self, now: Instant, event: E) -> (E::Reply, Effects) {
        let mut effects = Effects::default();
        let reply = event.apply(self, now, &mut effects);
        (reply, effects)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether the claims that this client holds admit another of `mode`. Removes holds past their deadline.
    pub(super) fn admits(&mut self, now: Instant, mode: Mode) -> bool {
        if self.holders.is_empty() {
            return true;
        }
        self.holders.retain(|holder| now < holder.hold.deadline());
        mode.admits(self.holders.iter().map(|holder| holder.hold.mode()))
    }

    pub(super) fn contention(&mut self) -> &mut Contention {
        let limits = self.rules.policy;
        self.contention.get_or_insert_with(|| {
            Box::new(Contention {
                waiters: Waiters::default(),
                policy: HandoverPolicy::new(limits),
                standing: None,
                asked_about: Instant::ORIGIN,
                watch: OfferWatch::Busy,
            })
        })
    }

    /// Whether no local waiter can be offered a grant, no offer or invitation is open, and no release that names a
    /// successor is in flight.
    pub(super) fn is_quiet(&self) -> bool {
        self.phase != Phase::HandingOver
            && self.contention.as_ref().is_none_or(|contention| {
                contention.waiters.first().is_none() && !contention.waiters.has_offers()
            })
    }

    /// Starts the poller, or notifies it if it runs. Does nothing if the client is closed.
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

    /// Ensures that the poller checks in time whether an offer, just made, is taken.
    pub(super) fn watch_offer(&mut self, effects: &mut Effects) {
        let was = mem::replace(&mut self.contention().watch, OfferWatch::Busy);
        match self.phase {
            Phase::Idle => self.wake_poller(effects),
            _ if was == OfferWatch::Asleep => effects.notify_poller(),
            _ => {}
        }
    }

    pub(super) fn waiter(&mut self, id: WaiterId) -> Option<&mut Waiter> {
        self.contention.as_mut()?.waiters.get_mut(id)
    }

    /// Whether the queue has no poller, no waiter, no holder, and no call in flight.
    #[cfg(all(test, feature = "testing"))]
    pub(super) fn is_at_rest(&self) -> bool {
        self.phase == Phase::Idle
            && self.contention.is_none()
            && self.asking.is_empty()
            && self.holders.is_empty()
    }

    /// Drops `contention` if no waiter is left and no poller runs.
    pub(super) fn tidy(&mut self) {
        let is_empty = |contention: &Contention| contention.waiters.is_empty();
        if self.phase == Phase::Idle && self.contention.as_deref().is_some_and(is_empty) {
            self.contention = None;
        }
    }
}

/// Something that happens to a key: for example, a caller arrives.
pub(crate) trait Event {
    type Reply;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Self::Reply;
}

/// Queue event: the client closes, and its waiters end.
pub(super) struct Close;

impl Event for Close {
    /// The claims of the closed queue. All must be released.
    type Reply = SmallVec<[Holder; 1]>;

    fn apply(self, queue: &mut KeyQueue, _: Instant, effects: &mut Effects) -> Self::Reply {
        queue.notify_poller(effects);
        queue.phase = Phase::Closed;
        queue.asking.clear();
        if let Some(contention) = queue.contention.take() {
            effects.withdraw = contention.standing.map(|standing| standing.claim);
            for mut waiter in contention.waiters.into_iter() {
                waiter.set(WaiterState::Left, effects);
                if let Route::Store(signal) = waiter.route {
                    effects.notify.push(signal);
                }
            }
        }
        mem::take(&mut queue.holders)
    }
}
