//! Every key that somebody has to do with. What happens at one key is in `room.rs`; locking is in `store.rs`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Claim, Instant, LockKey, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest, Tombstones, WakeSignal,
};

use crate::fates::Fates;
use crate::room::Room;
use crate::tokens::Tokens;
use crate::visit::{Bells, Moment, Visit};
use crate::watch::Watcher;

/// With fewer rooms the table is never swept.
const MIN_SWEEP: usize = 1024;

/// The store's whole state, as a pure state machine: time comes with each call, wake-ups leave with it.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rooms: HashMap<LockKey, Room>,
    /// Once there are so many rooms, those of the dead are cleared out.
    sweep_at: usize,
    tokens: Tokens,
    ended: Tombstones,
    fates: Fates,
}

impl Table {
    /// An empty table for a store on whose clock it is `now`, `wall` after the Unix epoch.
    pub(crate) fn new(now: Instant, wall: Duration) -> Self {
        Table {
            rooms: HashMap::new(),
            sweep_at: MIN_SWEEP,
            tokens: Tokens::new(now, wall),
            ended: Tombstones::default(),
            fates: Fates::default(),
        }
    }

    pub(crate) fn acquire(
        &mut self,
        claim: Arc<Claim>,
        not_after: Instant,
        at: Moment,
        signals: &mut Bells,
    ) -> Result<AcquireReply, BackendError> {
        self.visit(claim.at.key.clone(), at, signals, |room, visit| {
            room.acquire(claim, not_after, visit)
        })
    }

    pub(crate) fn renew(&mut self, renewal: &RenewRequest, at: Moment, signals: &mut Bells) -> RenewReply {
        self.visit(renewal.claim.key.clone(), at, signals, |room, visit| {
            room.renew(renewal, visit)
        })
    }

    pub(crate) fn release(
        &mut self,
        departure: ReleaseRequest,
        at: Moment,
        signals: &mut Bells,
    ) -> ReleaseReply {
        self.visit(departure.target.key().clone(), at, signals, |room, visit| {
            room.release(departure, visit)
        })
    }

    pub(crate) fn watch(&mut self, claim: Arc<Claim>, signal: WakeSignal, at: Moment, signals: &mut Bells) {
        self.visit(claim.at.key.clone(), at, signals, |room, visit| {
            room.watch(Watcher { claim, signal }, visit);
        });
    }

    pub(crate) fn unwatch(&mut self, key: &LockKey, signal: &WakeSignal, at: Moment, signals: &mut Bells) {
        self.visit(key.clone(), at, signals, |room, visit| {
            room.unwatch(signal, visit)
        });
    }

    /// Everything that happens to a key happens in a visit: the dead are buried, `act` acts, those who may go
    /// by it are called, and a room without anybody is taken down, so that nothing is left behind of a key.
    fn visit<T>(
        &mut self,
        key: LockKey,
        at: Moment,
        signals: &mut Bells,
        act: impl FnOnce(&mut Room, &mut Visit<'_>) -> T,
    ) -> T {
        if self.rooms.len() >= self.sweep_at {
            self.sweep(at, signals);
        }
        let mut room = match self.rooms.entry(key) {
            Entry::Occupied(room) => room,
            Entry::Vacant(free) => free.insert_entry(Room::default()),
        };
        let mut visit = Visit {
            at,
            tokens: &mut self.tokens,
            ended: &mut self.ended,
            fates: &mut self.fates,
            signals,
            freed: false,
        };
        let answer = enter(room.get_mut(), &mut visit, act);
        if room.get_mut().tidy(at.now) {
            room.remove();
        }
        answer
    }

    /// Visits every room, for the sake of those whose clients died: nobody else may ever ask for their keys.
    /// Since the table has doubled since the last time, a visit's share of the work stays the same however
    /// many keys there are.
    fn sweep(&mut self, at: Moment, signals: &mut Bells) {
        let Table {
            rooms,
            tokens,
            ended,
            fates,
            ..
        } = self;
        rooms.retain(|_, room| {
            let mut visit = Visit {
                at,
                tokens,
                ended,
                fates,
                signals,
                freed: false,
            };
            enter(room, &mut visit, |_, _| ());
            !room.tidy(at.now)
        });
        self.sweep_at = MIN_SWEEP.max(2 * self.rooms.len());
    }
}

fn enter<T>(room: &mut Room, visit: &mut Visit<'_>, act: impl FnOnce(&mut Room, &mut Visit<'_>) -> T) -> T {
    room.bury_the_dead(visit);
    let answer = act(room, visit);
    room.call_the_next(visit);
    answer
}

#[cfg(test)]
mod liveness;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod trial;
#[cfg(test)]
mod walk;
