//! The table of all keys in use. `key_state.rs` has the state of one key; `store.rs` locks the table.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, Instant, LockKey, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest, Tombstones, WakeSignal,
};

use crate::key_state::KeyState;
use crate::losses::Losses;
use crate::operation::{Moment, Operation, Signals};
use crate::tokens::Tokens;
use crate::watchers::Watcher;

/// With fewer keys than this, an operation expires claims of its own key only.
const MIN_SWEEP: usize = 1024;

/// The whole state of the store, as a pure state machine: each call gets the time and collects the signals to notify.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) keys: HashMap<LockKey, KeyState>,
    /// Number of keys at which the next operation clears out expired claims of all keys.
    sweep_at: usize,
    tokens: Tokens,
    ended: Tombstones,
    losses: Losses,
}

impl Table {
    pub(crate) fn new(now: Instant, wall: Duration) -> Self {
        Table {
            keys: HashMap::new(),
            sweep_at: MIN_SWEEP,
            tokens: Tokens::new(now, wall),
            ended: Tombstones::default(),
            losses: Losses::default(),
        }
    }

    pub(crate) fn acquire(
        &mut self,
        claim: Arc<Claim>,
        not_after: Instant,
        at: Moment,
        signals: &mut Signals,
    ) -> Result<AcquireReply, BackendError> {
        self.operate(claim.at.key.clone(), at, signals, |state, op| {
            state.acquire(claim, not_after, op)
        })
    }

    pub(crate) fn renew(&mut self, request: &RenewRequest, at: Moment, signals: &mut Signals) -> RenewReply {
        self.operate(request.claim.key.clone(), at, signals, |state, op| {
            state.renew(request, op)
        })
    }

    pub(crate) fn release(
        &mut self,
        request: ReleaseRequest,
        at: Moment,
        signals: &mut Signals,
    ) -> ReleaseReply {
        self.operate(request.target.key().clone(), at, signals, |state, op| {
            state.release(request, op)
        })
    }

    pub(crate) fn watch(&mut self, claim: Arc<Claim>, signal: WakeSignal, at: Moment, signals: &mut Signals) {
        self.operate(claim.at.key.clone(), at, signals, |state, op| {
            state.watch(Watcher::new(claim, signal), op);
        });
    }

    pub(crate) fn unwatch(&mut self, key: &LockKey, signal: &WakeSignal, at: Moment, signals: &mut Signals) {
        self.operate(key.clone(), at, signals, |state, op| state.unwatch(signal, op));
    }

    /// Runs `act` on the state of one key.
    ///
    /// Every operation has the same steps: it expires claims, runs `act`, wakes the claims that go next, and removes
    /// the state if that is empty, so that an unused key takes no space.
    fn operate<T>(
        &mut self,
        key: LockKey,
        at: Moment,
        signals: &mut Signals,
        act: impl FnOnce(&mut KeyState, &mut Operation<'_>) -> T,
    ) -> T {
        if self.keys.len() >= self.sweep_at {
            self.sweep(at, signals);
        }
        let mut state = match self.keys.entry(key) {
            Entry::Occupied(state) => state,
            Entry::Vacant(free) => free.insert_entry(KeyState::default()),
        };
        let mut op = Operation {
            at,
            tokens: &mut self.tokens,
            ended: &mut self.ended,
            losses: &mut self.losses,
            signals,
            freed: false,
            releaser: None,
        };
        let reply = run(state.get_mut(), &mut op, act);
        if state.get_mut().tidy(at.now) {
            state.remove();
        }
        reply
    }

    /// Clears out the expired claims of all keys, because a dead client's keys may never be used again.
    ///
    /// The number of keys doubles between two sweeps, so the average cost per operation does not depend on this number.
    fn sweep(&mut self, at: Moment, signals: &mut Signals) {
        let Table {
            keys,
            tokens,
            ended,
            losses,
            ..
        } = self;
        keys.retain(|_, state| {
            let mut op = Operation {
                at,
                tokens,
                ended,
                losses,
                signals,
                freed: false,
                releaser: None,
            };
            run(state, &mut op, |_, _| ());
            !state.tidy(at.now)
        });
        self.sweep_at = MIN_SWEEP.max(2 * self.keys.len());
    }
}

fn run<T>(
    state: &mut KeyState,
    op: &mut Operation<'_>,
    act: impl FnOnce(&mut KeyState, &mut Operation<'_>) -> T,
) -> T {
    state.expire_claims(op);
    state.end_missed_turns(op);
    let reply = act(state, op);
    state.wake_next(op);
    reply
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod liveness;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod wake_ups;
#[cfg(test)]
mod walk;
