//! This client's knowledge of its own claims: where they are placed, until when they live, which have ended and why.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    BackendError, ClaimId, ClaimRef, Effect, Instant, LockKey, Loss, TokenRange, Tombstones,
};
use tokio::sync::OwnedMutexGuard;

use super::sessions::Session;
use super::targets::Target;
use super::value::Value;
use crate::client::Op;

/// With fewer losses than this, the table forgets none.
const MIN_SWEEP: usize = 64;

/// Where the nodes of a claim are created: in a session, and below a node.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) session: Arc<Session>,
    pub(super) folder: String,
}

/// A claim that has a node in ZooKeeper.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) spot: Spot,
    /// The claim's nodes: one; or one for each permit that it holds; or its own one, and the lock's node. An eviction marks the
    /// first.
    pub(super) nodes: Vec<String>,
    /// Version of the first node, as this client knows it. An eviction changes it.
    pub(super) version: i32,
    /// Number of the change that created the nodes.
    pub(super) czxid: i64,
    /// What this client wrote.
    pub(super) value: Value,
    /// The tokens, once the claim holds its lock.
    pub(super) granted: Option<TokenRange>,
    /// What the claim waits for, by its last poll.
    pub(super) target: Target,
    /// The lease that the claim asked for when it was placed.
    pub(super) asked: Duration,
    /// Start and length of the claim's lease, as they were answered last.
    pub(super) lease: (Instant, Duration),
    /// End of the claim's own lease. Its session lasts longer.
    pub(super) ends: Instant,
}

impl Placed {
    /// The conditions that the claim was not evicted, and that its nodes were not deleted. Two nodes are enough: only by hand are
    /// they deleted one by one.
    pub(super) fn unchanged(&self) -> Vec<Op> {
        let nodes = self.nodes.iter().take(2).enumerate();
        nodes
            .map(|(at, node)| Op::Check(node.clone(), self.version_of(at)))
            .collect()
    }

    /// Deletes the nodes, if the claim was not evicted.
    pub(super) fn deletes(&self) -> Vec<Op> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .map(|(at, node)| Op::Delete(node.clone(), self.version_of(at)))
            .collect()
    }

    fn version_of(&self, at: usize) -> Option<i32> {
        (at == 0).then_some(self.version)
    }
}

#[derive(Debug, Default)]
struct Entry {
    key: Option<LockKey>,
    /// Locked by a call that may place the claim or remove it.
    turn: Arc<tokio::sync::Mutex<()>>,
    spot: Option<Spot>,
    placed: Option<Placed>,
    /// When to withdraw a request that may have placed the claim and was not answered.
    in_flight_until: Option<Instant>,
    /// Whether a release of the claim was sent. It may have had an effect.
    is_releasing: bool,
}

/// A claim whose lease has ended.
#[derive(Debug)]
pub(super) enum Expired {
    Placed(Box<Placed>),
    /// A request that was not answered may have created the claim's node at this spot.
    InFlight(ClaimId, Spot),
}

/// What is known of a claim.
#[derive(Debug)]
pub(super) enum Known {
    Ended,
    Placed(Box<Placed>),
    /// The claim has no node, as far as the client knows. A request that was not answered may have created one at this spot.
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
            }) => Known::Placed(Box::new(placed.clone())),
            entry => Known::Unplaced(entry.and_then(Entry::in_flight)),
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

    /// Notes that a request to place the claim has failed. If its effect is unknown, it is withdrawn after the time of its
    /// session, unless the claim ends before.
    pub(super) fn not_placed(&self, id: ClaimId, error: &BackendError, now: Instant) {
        if error.effect() == Effect::Unknown {
            self.with(id, |entry| {
                let spot = entry.spot.as_ref();
                entry.in_flight_until = spot.map(|spot| now + spot.session.timeout());
            });
        }
        self.unplace(id);
    }

    pub(super) fn place(&self, id: ClaimId, placed: Placed) {
        self.with(id, |entry| entry.placed = Some(placed));
    }

    /// Records that the claim has no node. Keeps its spot if a request is in flight.
    pub(super) fn unplace(&self, id: ClaimId) {
        self.with(id, |entry| {
            entry.placed = None;
            if entry.in_flight_until.is_none() {
                entry.spot = None;
            }
        });
    }

    /// Records that no request is in flight.
    pub(super) fn settled(&self, id: ClaimId) {
        self.with(id, |entry| entry.in_flight_until = None);
    }

    /// Changes a placed claim, unless it was removed or placed again meanwhile. Returns false if so.
    pub(super) fn update(&self, id: ClaimId, czxid: i64, change: impl FnOnce(&mut Placed)) -> bool {
        let mut state = self.0.lock();
        let entry = state.claims.get_mut(&id).filter(|entry| !entry.is_releasing);
        let placed = entry.and_then(|entry| entry.placed.as_mut());
        let placed = placed.filter(|placed| placed.czxid == czxid);
        placed.map(change).is_some()
    }

    /// Marks the claim as being released. Returns where it is placed, and the place of a request that was not answered.
    pub(super) fn begin_release(&self, id: ClaimId) -> (Option<Placed>, Option<Spot>) {
        let mut state = self.0.lock();
        let Some(entry) = state.claims.get_mut(&id) else {
            return (None, None);
        };
        entry.is_releasing = true;
        (entry.placed.clone(), entry.in_flight())
    }

    /// Undoes `begin_release`, after ZooKeeper refused the release without effect.
    pub(super) fn cancel_release(&self, id: ClaimId) {
        self.with(id, |entry| entry.is_releasing = false);
    }

    /// Records that the claim has ended, and why if it was lost. Remembers that for the given time.
    pub(super) fn end(&self, id: ClaimId, now: Instant, lost: Option<(Loss, Duration)>) {
        let mut state = self.0.lock();
        if let Some(entry) = state.claims.get_mut(&id) {
            (entry.placed, entry.spot) = (None, None);
        }
        state.ended(id, now, lost);
    }

    /// Why the claim was lost, as far as the table remembers.
    pub(super) fn loss(&self, id: ClaimId) -> Loss {
        let state = self.0.lock();
        let lost = state.losses.get(&id);
        lost.map_or(Loss::Missing, |(loss, _)| loss.clone())
    }

    /// Whether claims may have nodes in a session.
    pub(super) fn uses(&self, session: i64) -> bool {
        let state = self.0.lock();
        let is_in = |entry: &Entry| entry.spot.as_ref().is_some_and(|spot| spot.session.id == session);
        state.claims.values().any(is_in)
    }

    /// Ends the claims of a session that has ended.
    pub(super) fn end_session(&self, session: i64, now: Instant, remembered: Duration) {
        let mut state = self.0.lock();
        let is_in = |placed: &mut Placed| placed.spot.session.id == session;
        let entries = state.claims.iter_mut();
        let lost: Vec<ClaimId> = entries
            .filter_map(|(id, entry)| entry.placed.take_if(is_in).map(|_| *id))
            .collect();
        for id in lost {
            if let Some(entry) = state.claims.get_mut(&id) {
                entry.spot = None;
            }
            state.ended(id, now, Some((Loss::Session, remembered)));
        }
    }

    /// Forgets where claims are placed, and so their sessions.
    pub(super) fn close(&self) {
        self.0.lock().claims.clear();
    }

    /// The lock that a claim is placed for.
    pub(super) fn lock_of(&self, id: ClaimId) -> Option<LockKey> {
        self.0.lock().claims.get(&id)?.key.clone()
    }

    /// The first end of a claim that has a node, or may have one.
    pub(super) fn next_end(&self) -> Option<Instant> {
        let state = self.0.lock();
        state.claims.values().filter_map(Entry::ends).min()
    }

    /// Ends the claims whose leases have ended, and returns them. The caller removes their nodes.
    pub(super) fn expire(&self, now: Instant, remembered: Duration) -> Vec<Expired> {
        let mut state = self.0.lock();
        let mut expired = Vec::new();
        let mut ids = Vec::new();
        for (id, entry) in &mut state.claims {
            if let Some(placed) = entry.placed.take_if(|placed| placed.ends <= now) {
                entry.spot = None;
                expired.push(Expired::Placed(Box::new(placed)));
                ids.push(*id);
            } else if entry.is_forgotten(now) {
                entry.in_flight_until = None;
                let spot = entry.spot.take();
                expired.extend(spot.map(|spot| Expired::InFlight(*id, spot)));
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

impl Entry {
    fn in_flight(&self) -> Option<Spot> {
        self.spot.clone().filter(|_| self.in_flight_until.is_some())
    }

    /// The end of the claim's lease; `None` for a claim that has no node.
    fn ends(&self) -> Option<Instant> {
        let placed = self.placed.as_ref().map(|placed| placed.ends);
        placed.or(self.in_flight_until)
    }

    /// Whether a request was not answered, and no call has asked for its outcome until the end of the lease. A call that is under
    /// way may be about to find the claim's node.
    fn is_forgotten(&self, now: Instant) -> bool {
        let is_over = self.placed.is_none() && self.in_flight_until.is_some_and(|until| until <= now);
        is_over && self.turn.try_lock().is_ok()
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
