//! A queue shared by its callers, its poller and its releases. Locks the state machine and carries out its effects.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{AcquireReply, Cause, Claim, ClaimRef, Fairness, Grant, Instant, Kind, LockKey, Mode};
use tokio::sync::{Notify, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::effects::{Effects, Granted, PollerEffect, ReleaseOrder, SuccessorRequest};
use super::holders::{Downgraded, Exit, HoldEnded, HolderDone};
use super::linger::LingerOver;
use super::polls::SuccessorAnswered;
use super::registry::Registry;
use super::state::{Event, KeyQueue, Rules};
use super::waiter::WaiterId;
use crate::engine::context::Context;
use crate::engine::hold::{Hold, HoldObserver};
use crate::engine::releaser::{NamedSuccessor, Origin, Release, Releaser};
use crate::engine::request::LockRequest;
use crate::engine::services::Services;
use crate::engine::timer::{sleep, sleep_until};
use crate::telemetry::Meters;

pub(crate) struct SharedQueue {
    pub(crate) key: LockKey,
    kind: Kind,
    pub(crate) services: Arc<Services>,
    registry: Arc<Registry<SharedQueue>>,
    /// Metrics of this key, if keys have metrics of their own.
    meters: Option<Arc<Meters>>,
    /// See [`signal`](Self::signal). Boxed, because most keys never have a poller.
    signal: OnceLock<Box<Notify>>,
    state: Mutex<KeyQueue>,
}

impl SharedQueue {
    /// The queue of a key and kind of lock. Made if none is in use.
    pub(crate) fn get(
        registry: &Arc<Registry<SharedQueue>>,
        services: &Arc<Services>,
        rules: &Arc<Rules>,
        key: LockKey,
        kind: Kind,
    ) -> Arc<Self> {
        let is_for = |queue: &SharedQueue, key: &LockKey| queue.key == *key && queue.kind == kind;
        registry.get(key, is_for, |key, is_closed| {
            let context = &services.context;
            let meters = context.settings.key_labels.then(|| {
                let store = context.store.profile().store;
                Arc::new(Meters::new(store, Some(key.as_str())))
            });
            SharedQueue {
                key,
                kind,
                services: services.clone(),
                registry: registry.clone(),
                meters,
                signal: OnceLock::new(),
                state: Mutex::new(KeyQueue::new(rules.clone(), is_closed)),
            }
        })
    }

    /// Applies an event: locks the queue, reads the clock, unlocks the queue, and carries out the effects.
    ///
    /// The clock is read while the queue is locked, so events are applied in the order of their times, and no time
    /// limit is checked with an outdated time. Wakers, metrics and calls run after the queue is unlocked.
    pub(crate) fn apply<E: Event>(self: &Arc<Self>, event: E) -> E::Reply {
        self.apply_at(event).0
    }

    /// As [`apply`](Self::apply); also returns the time of the event.
    pub(crate) fn apply_at<E: Event>(self: &Arc<Self>, event: E) -> (E::Reply, Instant) {
        let mut state = self.state.lock();
        let now = self.context().now();
        let (reply, effects) = state.on(now, event);
        drop(state);
        self.carry_out(effects);
        (reply, now)
    }

    /// This client's granted claims on the key: held, offered to a waiter, lingering, or kept for `at_least`.
    pub(crate) fn holds(&self) -> Vec<Arc<Hold>> {
        self.state.lock().holds()
    }

    pub(super) fn is_waiting(&self, id: WaiterId) -> bool {
        self.state.lock().is_waiting(id)
    }

    pub(crate) fn is_unanswered(&self, id: WaiterId, mode: Mode) -> bool {
        let mut state = self.state.lock();
        state.is_unanswered(self.context().now(), id, mode)
    }

    fn carry_out(self: &Arc<Self>, mut effects: Effects) {
        match effects.poller {
            Some(PollerEffect::Start) => self.start_poller(),
            Some(PollerEffect::Notify) => self.signal().notify_one(),
            None => {}
        }
        for signal in &effects.notify {
            signal.notify_one();
        }
        if let Some(claim) = effects.withdraw {
            self.withdraw(&claim);
        }
        for order in effects.releases {
            self.services.releaser.send_later(self.release(order));
        }
        if let Some(until) = effects.linger_until {
            self.services.tasks.spawn(linger(self.clone(), until));
        }
        if effects.handed_over > 0 {
            self.meters().passed.increment(effects.handed_over);
        }
        // Drained in place, which costs less than a move: most events wake no caller.
        for waker in effects.wakes.drain(..) {
            waker.wake();
        }
    }

    /// Wakes the poller of the local waiters.
    pub(super) fn signal(&self) -> &Notify {
        self.signal.get_or_init(Box::default)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.services.context
    }

    pub(crate) fn meters(&self) -> &Meters {
        self.meters.as_deref().unwrap_or_else(|| self.context().meters())
    }

    /// Makes a new claim on this key, with an ID not used before.
    pub(crate) fn claim(&self, request: &LockRequest, fairness: Fairness, reserve: u32) -> Arc<Claim> {
        request.claim(self.context(), &self.key, fairness, reserve)
    }

    /// Accepts a grant: the renewer watches its lease from now on. `None` if its local deadline has passed.
    pub(crate) fn accept(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        grant: Grant,
        request: &LockRequest,
    ) -> Option<Arc<Hold>> {
        let terms = request.options.terms;
        let now = self.context().now();
        let hold = Hold::new(self.clone(), claim, grant, terms, now)?;
        self.services.renewer.watch(&hold, now);
        Some(hold)
    }

    /// Accepts a grant, and offers it to a waiter by the event that `report` makes. Releases the claim if no
    /// waiter can be offered it. If the local deadline has passed, only withdraws the claim and returns false.
    pub(super) fn deliver<E: Event<Reply = bool>>(
        self: &Arc<Self>,
        claim: &Arc<Claim>,
        grant: Grant,
        request: &LockRequest,
        report: impl FnOnce(Granted) -> E,
    ) -> bool {
        let Some(hold) = self.accept(claim, grant, request) else {
            self.withdraw(claim);
            return false;
        };
        let granted = Granted {
            hold: hold.clone(),
            request: request.clone(),
        };
        if !self.apply(report(granted)) {
            self.reject(&hold);
        }
        true
    }

    /// Releases an accepted grant that no caller has seen.
    pub(crate) fn reject(self: &Arc<Self>, hold: &Hold) {
        hold.depart();
        self.services.renewer.forget(hold);
        self.withdraw_claim(hold.at.clone(), hold.asked_lease());
    }

    /// Handles an unlock, or a passed local deadline. Returns what becomes of the claim, and the time of the event.
    pub(crate) fn done(self: &Arc<Self>, hold: &Arc<Hold>) -> (Exit, Instant) {
        self.apply_at(HolderDone(hold))
    }

    /// Handles an unlock, or a passed local deadline, and sends the release in the background. Returns the time of
    /// the event.
    pub(crate) fn done_behind(self: &Arc<Self>, hold: &Arc<Hold>) -> Instant {
        let (exit, now) = self.done(hold);
        if let Exit::Release(order) = exit {
            self.services.releaser.send_later(self.release(order));
        }
        now
    }

    pub(crate) fn release(self: &Arc<Self>, order: ReleaseOrder) -> Release {
        let ReleaseOrder {
            hold,
            successor,
            token,
        } = order;
        self.services.renewer.forget(&hold);
        let successor = successor.map(|SuccessorRequest { request, reserve }| NamedSuccessor {
            claim: self.claim(&request, Fairness::Unfair, reserve),
            request,
        });
        self.release_of(&hold, successor, token)
    }

    pub(super) fn release_of(
        self: &Arc<Self>,
        hold: &Hold,
        successor: Option<NamedSuccessor>,
        token: TaskTrackerToken,
    ) -> Release {
        let (claim, lease) = (hold.at.clone(), hold.asked_lease());
        Release::new(self.clone(), claim, lease, Cause::Unlocked, successor, token)
    }

    /// Releases a claim in the background, whatever its state in the store. If a call for it was not answered, use
    /// [`withdraw_unanswered`](Self::withdraw_unanswered).
    pub(crate) fn withdraw(self: &Arc<Self>, claim: &Claim) {
        self.withdraw_claim(claim.at.clone(), claim.lease);
    }

    fn withdraw_claim(self: &Arc<Self>, claim: ClaimRef, lease: Duration) {
        let token = self.services.tasks.token();
        let release = Release::new(self.clone(), claim, lease, Cause::Withdrawn, None, token);
        self.services.releaser.send_later(release);
    }

    /// Releases a claim now and, unless the store remembers ended claims, again when its unanswered call can no
    /// longer place it.
    pub(crate) fn withdraw_unanswered(self: &Arc<Self>, claim: &Arc<Claim>) {
        self.withdraw(claim);
        self.expect_late_call(claim.clone());
    }

    /// Withdraws a claim again when an unanswered call can no longer place it, unless a caller then holds the claim.
    ///
    /// Does nothing on a store that remembers ended claims, because that store cannot place the claim again after its
    /// release.
    pub(crate) fn expect_late_call(self: &Arc<Self>, claim: Arc<Claim>) {
        if self.context().store.profile().remembers_ended {
            return;
        }
        let queue = self.clone();
        self.services.tasks.spawn(async move {
            let Services { context, tasks, .. } = &*queue.services;
            tokio::select! {
                biased;
                () = tasks.closing().cancelled() => {}
                () = sleep(tasks, context.settings.call_limit) => {}
            }
            let holds = queue.holds();
            if !holds.iter().any(|hold| hold.at.id == claim.at.id) {
                queue.withdraw(&claim);
            }
        });
    }
}

/// A task that releases lingering claims when their time is over, until none is left.
async fn linger(queue: Arc<SharedQueue>, mut until: Instant) {
    let Services { context, tasks, .. } = &*queue.services;
    loop {
        tokio::select! {
            biased;
            () = tasks.closing().cancelled() => return,
            () = sleep_until(tasks, &*context.clock, until) => {}
        }
        match queue.apply(LingerOver) {
            Some(next) => until = next,
            None => return,
        }
    }
}

impl Origin for SharedQueue {
    fn releaser(&self) -> &Releaser {
        &self.services.releaser
    }

    fn meters(&self) -> &Meters {
        SharedQueue::meters(self)
    }

    fn successor_answered(
        self: Arc<Self>,
        NamedSuccessor { claim, request }: NamedSuccessor,
        others: Option<u32>,
        state: Option<AcquireReply>,
        may_be_placed: bool,
    ) {
        if may_be_placed {
            self.withdraw_unanswered(&claim);
        }
        let was_refused = matches!(state, Some(AcquireReply::Waiting { .. }));
        let answered = |granted| SuccessorAnswered {
            others,
            was_refused,
            granted,
        };
        let is_reported = match state {
            Some(AcquireReply::Granted(grant)) => {
                self.deliver(&claim, grant, &request, |granted| answered(Some(granted)))
            }
            _ => false,
        };
        if !is_reported {
            self.apply(answered(None));
        }
    }
}

impl HoldObserver for SharedQueue {
    fn context(&self) -> &Arc<Context> {
        SharedQueue::context(self)
    }

    fn meters(&self) -> &Meters {
        SharedQueue::meters(self)
    }

    fn deadline_passed(self: Arc<Self>, hold: &Arc<Hold>) {
        let now = self.context().now();
        if let Some(until) = hold.kept_until().filter(|until| *until > now) {
            // Releases the claim only when `at_least` is over.
            self.keep(hold, until, oneshot::channel().0);
        } else {
            self.done_behind(hold);
        }
    }

    fn claim_gone(self: Arc<Self>, hold: &Arc<Hold>) {
        self.apply(HoldEnded(hold));
    }

    fn downgraded(self: Arc<Self>) {
        self.apply(Downgraded);
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        self.registry.forget(&self.key);
    }
}

impl fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue")
            .field("key", &self.key)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
