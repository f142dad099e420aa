//! The state of one key: its holders, its queue, and the clients that watch it.
//!
//! `acquire.rs`, `renew.rs`, `release.rs` and `watch.rs` have its operations. None of them reads a clock or wakes a
//! waiter: an [`Operation`] brings the time, and collects the signals to notify.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use tenure_backend::{Claim, ClaimId, Instant, Kind, Mode, TokenRange};

use crate::operation::Operation;
use crate::watchers::Watchers;

/// The state of one key. A claim that is neither in `holds` nor in the queue is absent.
#[derive(Debug, Default)]
pub(crate) struct KeyState {
    pub(crate) holds: SmallVec<[Hold; 1]>,
    /// Boxed to keep the state small, because most keys are held without any waiter.
    pub(crate) waiters: Option<Box<Waiters>>,
}

/// A granted claim.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: Arc<Claim>,
    pub(crate) tokens: TokenRange,
    /// End of the lease.
    pub(crate) ends: Instant,
}

/// A claim in the queue, which has its own lease while it waits.
#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(crate) claim: Arc<Claim>,
    /// End of the lease.
    pub(crate) ends: Instant,
}

/// The claims that wait for a key, and the reservations and the cooldown that delay a grant.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Fair claims, in the order in which they joined.
    pub(crate) queue: VecDeque<QueueEntry>,
    /// Claims whose clients asked for wake-ups. The store knows of a waiting unfair claim only by its watcher.
    pub(crate) watchers: Watchers,
    /// The key is reserved for these unfair claims, which were woken and have not polled since.
    pub(crate) reservations: Vec<Reservation>,
    /// End of the cooldown after an eviction, in which no claim is granted.
    pub(crate) cooldown: Option<Instant>,
}

/// Reserves the key for an unfair claim that was woken, until the claim polls or stops waiting, or the time `until`
/// has come.
///
/// A reserved key counts as held for the unfair claims of other clients. So the claim that has watched longest goes
/// next, and not the client that happens to poll first.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) id: ClaimId,
    pub(crate) mode: Mode,
    pub(crate) until: Instant,
}

impl KeyState {
    /// Ends every claim whose lease has ended. Every operation begins with this step, so none sees an expired claim,
    /// and no expired claim is renewed or granted.
    pub(crate) fn expire_claims(&mut self, op: &mut Operation<'_>) {
        let now = op.at.now;
        let mut expired: SmallVec<[ClaimId; 1]> = SmallVec::new();
        let mut is_alive = |claim: &Claim, ends: Instant| {
            if ends <= now {
                expired.push(claim.at.id);
            }
            now < ends
        };
        self.holds.retain(|hold| is_alive(&hold.claim, hold.ends));
        if let Some(waiters) = &mut self.waiters {
            waiters.queue.retain(|entry| is_alive(&entry.claim, entry.ends));
        }
        for id in expired {
            op.record_expiry(id);
            self.stop_waiting(id, true, op);
        }
    }

    /// Ends the turns that passed without a poll.
    pub(crate) fn end_missed_turns(&mut self, op: &mut Operation<'_>) {
        let Some(waiters) = &mut self.waiters else {
            return;
        };
        let Waiters {
            watchers,
            reservations,
            ..
        } = &mut **waiters;
        let before = reservations.len();
        reservations.retain(|reservation| {
            let lasts = op.at.now < reservation.until;
            if !lasts {
                watchers.set_missed_turn(reservation.id, true);
            }
            lasts
        });
        op.freed |= reservations.len() < before;
    }

    /// Drops `waiters` if nothing waits and no cooldown lasts. Returns whether the whole state is empty.
    pub(crate) fn tidy(&mut self, now: Instant) -> bool {
        if self.waiters.as_ref().is_some_and(|waiters| waiters.is_over(now)) {
            self.waiters = None;
        }
        self.holds.is_empty() && self.waiters.is_none()
    }

    /// The kind of lock that the key is used as; `None` if no claim holds it or queues for it.
    pub(crate) fn kind(&self) -> Option<Kind> {
        let holder = self.holds.first().map(|hold| &hold.claim);
        let claim = holder.or_else(|| self.queue().next().map(|entry| &entry.claim));
        claim.map(|claim| claim.mode.kind())
    }

    pub(crate) fn hold_mut(&mut self, id: ClaimId) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.claim.at.id == id)
    }

    /// The claim's position in the queue, counted from 0; `None` if the claim is not in the queue.
    pub(crate) fn position(&self, id: ClaimId) -> Option<usize> {
        self.queue().position(|entry| entry.claim.at.id == id)
    }

    pub(crate) fn queue(&self) -> impl Iterator<Item = &QueueEntry> {
        self.waiters.iter().flat_map(|waiters| &waiters.queue)
    }

    pub(crate) fn waiters_mut(&mut self) -> &mut Waiters {
        self.waiters.get_or_insert_default()
    }

    /// Removes the watchers and the reservation of a claim that has ended. With `wake` (after an eviction or an
    /// expiry), wakes the watchers first, so that the client learns of the end.
    pub(crate) fn stop_waiting(&mut self, id: ClaimId, wake: bool, op: &mut Operation<'_>) {
        if let Some(waiters) = &mut self.waiters {
            if wake {
                waiters.watchers.notify(id, op.signals);
            }
            waiters.watchers.remove_claim(id);
        }
        op.freed |= self.cancel_reservation(id);
    }

    /// Removes the claim's reservation, because the claim polls or no longer waits. Returns whether there was one.
    pub(crate) fn cancel_reservation(&mut self, id: ClaimId) -> bool {
        let Some(waiters) = &mut self.waiters else {
            return false;
        };
        let before = waiters.reservations.len();
        waiters.reservations.retain(|reservation| reservation.id != id);
        waiters.reservations.len() < before
    }
}

impl Waiters {
    fn is_over(&self, now: Instant) -> bool {
        self.queue.is_empty()
            && self.watchers.is_empty()
            && self.cooldown.is_none_or(|cooldown| cooldown <= now)
    }
}
