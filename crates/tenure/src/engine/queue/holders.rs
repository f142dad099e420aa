//! The events of holders: an unlocked claim goes to the next local waiter, lingers, or is released. A downgraded one
//! lets readers in.

use std::mem;
use std::sync::Arc;

use tenure_backend::{HANDOVER_WINDOW, Instant, Mode};

use super::effects::{Effects, ReleaseOrder, SuccessorRequest};
use super::state::{Contention, Event, Holder, KeyQueue, Phase};
use super::waiter::Offer;
use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;

/// Queue event: a guard was unlocked or dropped, or the hold's local deadline has passed.
pub(crate) struct HolderDone<'a>(pub(crate) &'a Arc<Hold>);

impl Event for HolderDone<'_> {
    type Reply = Exit;

    fn apply(self, queue: &mut KeyQueue, now: Instant, effects: &mut Effects) -> Exit {
        queue.holder_done(now, self.0, effects)
    }
}

/// What becomes of a claim that its holder has unlocked.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The next local waiter is offered the claim, in memory.
    HandedOver,
    /// The client keeps the claim for a few milliseconds, for the next local caller.
    Lingers,
    /// Other readers of this client share the claim.
    Shared,
    /// The claim was released before, for example at a close or at the local deadline.
    Gone,
    Release(ReleaseOrder),
}

/// Queue event: a hold ended, and the queue sends no release, because the claim is gone, or because `SharedQueue::keep`
/// sends the release after `at_least`.
pub(crate) struct HoldEnded<'a>(pub(crate) &'a Arc<Hold>);

impl Event for HoldEnded<'_> {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, _: Instant, effects: &mut Effects) {
        queue.holders.retain(|holder| !Arc::ptr_eq(&holder.hold, self.0));
        queue.notify_poller(effects);
    }
}

/// Queue event: the store has downgraded a holder's write claim. Readers may hold the key together with that claim.
pub(crate) struct Downgraded;

impl Event for Downgraded {
    type Reply = ();

    fn apply(self, queue: &mut KeyQueue, _: Instant, effects: &mut Effects) {
        queue.notify_poller(effects);
    }
}

impl Holder {
    /// Returns whether the claim has the mode and the options of this request.
    pub(super) fn serves(&self, request: &LockRequest) -> bool {
        self.hold.mode() == request.mode && self.options == request.options
    }
}

impl KeyQueue {
    pub(super) fn holds(&self) -> Vec<Arc<Hold>> {
        self.holders.iter().map(|holder| holder.hold.clone()).collect()
    }

    /// The index of a hold among the holders.
    fn holder(&self, hold: &Arc<Hold>) -> Option<usize> {
        self.holders
            .iter()
            .position(|holder| Arc::ptr_eq(&holder.hold, hold))
    }

    /// Handles an unlock: hands the claim to the next local waiter, keeps it to linger or for other sharers,
    /// or returns the release to send.
    pub(super) fn holder_done(&mut self, now: Instant, hold: &Arc<Hold>, effects: &mut Effects) -> Exit {
        let at = self.holder(hold);
        if at.is_some_and(|at| self.hand_over(now, at, effects)) {
            return Exit::HandedOver;
        }
        if let Some(holder) = at.map(|at| &mut self.holders[at])
            && holder.sharers > 1
            && now < hold.deadline()
        {
            holder.sharers -= 1;
            return Exit::Shared;
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
        Exit::Release(ReleaseOrder {
            hold: hold.clone(),
            successor,
            token: self.rules.releases.token(hold.at.id),
        })
    }

    /// Offers a claim to the first local waiter, in memory. Returns false if no waiter waits, if the first waiter wants
    /// another mode or other options than the claim has, or if the claim may not be handed over.
    fn hand_over(&mut self, now: Instant, at: usize, effects: &mut Effects) -> bool {
        let Some(contention) = &mut self.contention else {
            return false;
        };
        let holder = &mut self.holders[at];
        let hold = &holder.hold;
        let is_allowed = self.rules.local_handover
            && contention.policy.may_hand_over(now)
            && holder.options.may_hand_over()
            && !hold.has_departed()
            && !hold.may_be_downgraded()
            && now < hold.deadline()
            && now - hold.fresh_from() < HANDOVER_WINDOW
            && holder.grants < hold.run;
        if !is_allowed {
            return false;
        }
        let Some(waiter) = contention.waiters.next_mut().next() else {
            return false;
        };
        if !holder.serves(&waiter.request) {
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
        effects.handed_over += 1;
        self.watch_offer(effects);
        true
    }

    /// Shares a read claim after its grant: hands it to the next local waiters too, up to the first that cannot get
    /// it in memory. Each sharer has a token of its own.
    pub(super) fn share(&mut self, now: Instant, hold: &Arc<Hold>, effects: &mut Effects) {
        let at = self.holder(hold);
        let Some(at) = at.filter(|at| self.holders[*at].hold.mode() == Mode::Read) else {
            return;
        };
        while self.hand_over(now, at, effects) {
            self.holders[at].sharers += 1;
        }
    }

    /// Number of tokens that a claim for the first local waiter reserves. A read claim reserves at least
    /// one for each waiter that can share it at once.
    pub(super) fn reserve(&mut self, request: &LockRequest) -> u32 {
        let Contention { waiters, policy, .. } = self.contention();
        let readers = match request.mode {
            Mode::Read => waiters.in_front(request),
            _ => 0,
        };
        policy.reserve().max(readers)
    }

    /// The successor that a release names: a new claim for the first local waiter. `None`: the release only frees the
    /// key.
    fn successor(&mut self, now: Instant) -> Option<SuccessorRequest> {
        if self.phase != Phase::Polling || !self.asking.is_empty() {
            return None;
        }
        let contention = self.contention.as_ref()?;
        // A claim that stands in the store's queue is in front of a successor.
        if contention.standing.is_some() {
            return None;
        }
        let request = contention.waiters.first()?.request.clone();
        if !self.admits(now, request.mode) {
            return None;
        }
        let policy = &mut self.contention.as_mut()?.policy;
        if !policy.names_successor(now) {
            return None;
        }
        let reserve = self.reserve(&request);
        self.phase = Phase::HandingOver;
        Some(SuccessorRequest { request, reserve })
    }

    /// Ends a hold. Its release, if any, is sent in the background.
    pub(super) fn give_up(&mut self, now: Instant, hold: &Arc<Hold>, effects: &mut Effects) {
        if let Exit::Release(order) = self.holder_done(now, hold, effects) {
            effects.releases.push(order);
        }
    }

    pub(super) fn hold(&mut self, now: Instant, hold: Arc<Hold>, request: LockRequest) {
        self.holders.push(Holder {
            hold,
            options: request.options,
            grants: 1,
            sharers: 1,
            lingers_until: None,
        });
        if let Some(contention) = &mut self.contention {
            let Contention { waiters, policy, .. } = &mut **contention;
            policy.run_began(now, || waiters.next().count());
        }
    }
}
