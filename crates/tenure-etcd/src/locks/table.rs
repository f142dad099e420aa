//! This client's knowledge of its own claims: where they are placed, until when they live, which have ended and why.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{ClaimId, ClaimRef, Instant, LockKey, Loss, TokenRange, Tombstones};
use tokio::sync::OwnedMutexGuard;

use super::leases::Lease;
use super::requests::{created, modified};
use super::targets::Found;
use super::value::Value;
use crate::client::Compare;

/// With fewer losses than this, the table forgets none.
const MIN_SWEEP: usize = 64;

/// A place for a claim: its key, and the lease that the key is named by.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) lease: Arc<Lease>,
    pub(super) key: Vec<u8>,
}

/// A claim that has a key in etcd.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) spot: Spot,
    /// What this client wrote last.
    pub(super) value: Value,
    /// Revision that created the key.
    pub(super) created: i64,
    /// Revision of this client's last write of the key. An eviction changes the key.
    pub(super) modified: i64,
    /// The tokens, once the claim holds its lock.
    pub(super) granted: Option<TokenRange>,
    /// What the claim waits for, by its last poll.
    pub(super) found: Found,
    /// End of the claim's own lease. The lease in etcd lasts longer while other claims on it are renewed.
    pub(super) ends: Instant,
}

impl Placed {
    /// The conditions that the key is as this client wrote it last.
    pub(super) fn unchanged(&self) -> Vec<Compare> {
        let key = &self.spot.key;
        vec![created(key, self.created), modified(key, self.modified)]
    }
}

#[derive(Debug, Default)]
struct Entry {
    key: Option<LockKey>,
    /// Locked by a call that may place the claim or remove it.
    turn: Arc<tokio::sync::Mutex<()>>,
    spot: Option<Spot>,
    placed: Option<Placed>,
    /// When to withdraw a request that may place the claim and was not answered.
    in_flight_until: Option<Instant>,
    /// Whether a release of the claim was sent. It may have had an effect.
    is_releasing: bool,
}

impl Entry {
    /// The end of the claim's lease; `None` for a claim that has no key.
    fn ends(&self) -> Option<Instant> {
        let placed = self.placed.as_ref().map(|placed| placed.ends);
        placed.or(self.in_flight_until)
    }
}

/// What is known of a claim.
#[derive(Debug)]
pub(super) enum Known {
    Ended,
    Placed(Placed),
    /// The claim has no key, as far as the client knows. A place may be reserved for it.
    Unplaced(Option<Spot>),
}

#[derive(Debug, Default)]
pub(super) struct Table(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    claims: HashMap<ClaimId, Entry>,
    ended: Tombstones,
    /// Why claims were lost, until the given time.
    losses: HashMap<ClaimId, (Loss, Instant)>,
    sweep_at: usize,
}

impl Table {
    /// Waits until no other call places or removes the claim.
    pub(super) async fn turn(&self, claim: &ClaimRef) -> OwnedMutexGuard<()> {
        let turn = {
            let mut state = self.0.lock();
            let entry = state.claims.entry(claim.id).or_default();
            entry.key = Some(claim.key.clone());
            entry.turn.clone()
        };
        turn.lock_owned().await
    }

    /// Ends a turn. Forgets the claim if there is nothing to know about it, and no other call waits for its turn.
    pub(super) fn end_turn(&self, id: ClaimId, turn: OwnedMutexGuard<()>) {
        let mut state = self.0.lock();
        drop(turn);
        let is_unused = |entry: &Entry| entry.spot.is_none() && Arc::strong_count(&entry.turn) == 1;
        if state.claims.get(&id).is_some_and(is_unused) {
            state.claims.remove(&id);
        }
    }

    pub(super) fn know(&self, id: ClaimId) -> Known {
        let state = self.0.lock();
        match state.claims.get(&id) {
            _ if state.ended.contains(id) => Known::Ended,
            Some(entry) if entry.is_releasing => Known::Ended,
            Some(Entry {
                placed: Some(placed), ..
            }) => Known::Placed(placed.clone()),
            entry => Known::Unplaced(entry.and_then(|entry| entry.spot.clone())),
        }
    }

    /// Returns where the claim is placed, if this client has placed it.
    pub(super) fn placed(&self, id: ClaimId) -> Option<Placed> {
        let state = self.0.lock();
        let entry = state.claims.get(&id).filter(|entry| !entry.is_releasing)?;
        entry.placed.clone()
    }

    pub(super) fn reserve(&self, id: ClaimId, spot: &Spot) {
        self.with(id, |entry| entry.spot = Some(spot.clone()));
    }

    /// Notes that a request to place the claim was not answered. It is withdrawn at `until`, unless the claim ends before.
    pub(super) fn unanswered(&self, id: ClaimId, until: Instant) {
        self.with(id, |entry| entry.in_flight_until = Some(until));
    }

    pub(super) fn place(&self, id: ClaimId, placed: Placed) {
        self.with(id, |entry| entry.placed = Some(placed));
    }

    /// Gives up the claim's place, after its key was removed or never written. Keeps it if a request is in flight.
    pub(super) fn unplace(&self, id: ClaimId) {
        self.with(id, |entry| {
            entry.placed = None;
            if entry.in_flight_until.is_none() {
                leave(entry);
            }
        });
    }

    /// Gives up a place at which nothing can be written. No other claim on the lock gets it.
    pub(super) fn abandon(&self, id: ClaimId) {
        self.with(id, |entry| (entry.spot, entry.in_flight_until) = (None, None));
    }

    /// Changes a placed claim, unless it was removed or placed again meanwhile. Returns false if so.
    pub(super) fn update(&self, id: ClaimId, created: i64, change: impl FnOnce(&mut Placed)) -> bool {
        let mut state = self.0.lock();
        let entry = state.claims.get_mut(&id).filter(|entry| !entry.is_releasing);
        let placed = entry.and_then(|entry| entry.placed.as_mut());
        let placed = placed.filter(|placed| placed.created == created);
        placed.map(change).is_some()
    }

    /// Marks the claim as being released. Returns where it is placed, and the place of a request that was not answered.
    pub(super) fn begin_release(&self, id: ClaimId) -> (Option<Placed>, Option<Spot>) {
        let mut state = self.0.lock();
        let Some(entry) = state.claims.get_mut(&id) else {
            return (None, None);
        };
        entry.is_releasing = true;
        let in_flight = entry.spot.clone().filter(|_| entry.in_flight_until.is_some());
        (entry.placed.clone(), in_flight)
    }

    /// Undoes `begin_release`, after etcd refused the release without effect.
    pub(super) fn cancel_release(&self, id: ClaimId) {
        self.with(id, |entry| entry.is_releasing = false);
    }

    /// Records that the claim has ended, and why if it was lost. Remembers that for the given time.
    pub(super) fn end(&self, id: ClaimId, now: Instant, lost: Option<(Loss, Duration)>) {
        let mut state = self.0.lock();
        if let Some(entry) = state.claims.get_mut(&id) {
            entry.placed = None;
            leave(entry);
        }
        state.ended(id, now, lost);
    }

    /// Why the claim was lost, as far as the table remembers.
    pub(super) fn loss(&self, id: ClaimId) -> Loss {
        let state = self.0.lock();
        let lost = state.losses.get(&id);
        lost.map_or(Loss::Missing, |(loss, _)| loss.clone())
    }

    /// The claims on a lease.
    pub(super) fn on_lease(&self, lease: &str) -> Vec<LockKey> {
        let state = self.0.lock();
        let is_on = |entry: &&Entry| entry.spot.as_ref().is_some_and(|spot| spot.lease.bell == lease);
        let entries = state.claims.values().filter(is_on);
        entries.filter_map(|entry| entry.key.clone()).collect()
    }

    /// The lock that a claim is placed for.
    pub(super) fn lock_of(&self, id: ClaimId) -> Option<LockKey> {
        self.0.lock().claims.get(&id)?.key.clone()
    }

    /// The first end of a claim that has a key, or may have one.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let state = self.0.lock();
        state.claims.values().filter_map(Entry::ends).min()
    }

    /// Ends the claims whose leases have ended, and returns their locks and places. The caller removes their keys, and then
    /// frees their places.
    pub(super) fn expire(&self, now: Instant, remembered: Duration) -> Vec<(LockKey, Spot)> {
        let mut state = self.0.lock();
        let mut expired = Vec::new();
        let mut ids = Vec::new();
        for (id, entry) in &mut state.claims {
            if entry.ends().is_some_and(|ends| ends <= now) {
                let (placed, reserved) = (entry.placed.take(), entry.spot.take());
                entry.in_flight_until = None;
                let spot = placed.map(|placed| placed.spot).or(reserved);
                expired.extend(entry.key.clone().zip(spot));
                ids.push(*id);
            }
        }
        for id in ids {
            state.ended(id, now, Some((Loss::Expired, remembered)));
        }
        expired
    }

    fn with(&self, id: ClaimId, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.0.lock().claims.get_mut(&id) {
            change(entry);
        }
    }
}

impl State {
    fn ended(&mut self, id: ClaimId, now: Instant, lost: Option<(Loss, Duration)>) {
        self.ended.insert(id, now);
        if let Some((loss, remembered)) = lost {
            if self.losses.len() >= self.sweep_at.max(MIN_SWEEP) {
                self.losses.retain(|_, (_, until)| now < *until);
                self.sweep_at = self.losses.len() * 2;
            }
            self.losses.entry(id).or_insert((loss, now + remembered));
        }
        let is_unused = |entry: &Entry| Arc::strong_count(&entry.turn) == 1;
        if self.claims.get(&id).is_some_and(is_unused) {
            self.claims.remove(&id);
        }
    }
}

/// Gives up the place of a claim.
fn leave(entry: &mut Entry) {
    if let (Some(spot), Some(key)) = (entry.spot.take(), &entry.key) {
        spot.lease.free(key);
    }
}
