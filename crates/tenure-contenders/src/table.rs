//! What a client knows of its own claims: where they are placed, until when they live, which have ended and why.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{
    BackendError, ClaimId, ClaimRef, Effect, Fault, Instant, LockKey, Loss, RenewReply, RenewRequest,
    TokenRange, Tombstones,
};
use tokio::sync::{Notify, OwnedMutexGuard};

use crate::claim_lease::ClaimLease;
use crate::value::Value;

/// With fewer losses than this, the table forgets none.
const MIN_SWEEP: usize = 64;

/// Where the record of a claim is created.
pub trait Spot: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Gives the spot up: another claim on the lock may have it. The table is locked meanwhile.
    fn leave(&self, lock: &LockKey) {
        let _ = lock;
    }

    /// Whether the same thing on the server keeps the records at both spots.
    fn shares(&self, other: &Self) -> bool;
}

/// A claim that has a record on the server.
pub trait Placed: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Where the record is.
    type Spot: Spot;

    /// Where the record is.
    fn spot(&self) -> &Self::Spot;
    /// What this client wrote.
    fn value(&self) -> &Value;
    /// The change on the server that created the record.
    fn created(&self) -> i64;
    /// The tokens, once the claim holds its lock.
    fn granted(&self) -> Option<TokenRange>;
    /// The claim's own lease.
    fn own_lease(&self) -> &ClaimLease;
    /// The claim's own lease, to change it.
    fn own_lease_mut(&mut self) -> &mut ClaimLease;

    /// End of the claim's own lease.
    fn ends(&self) -> Instant {
        self.own_lease().ends
    }
}

#[derive(Debug)]
struct Entry<P: Placed> {
    lock: LockKey,
    /// Locked by a call that may place the claim or remove it.
    turn: Arc<tokio::sync::Mutex<()>>,
    spot: Option<P::Spot>,
    placed: Option<P>,
    /// When to withdraw a request that may place the claim and was not answered.
    in_flight_until: Option<Instant>,
    /// Whether a release of the claim was sent. It may have had an effect.
    is_releasing: bool,
}

impl<P: Placed> Entry<P> {
    /// The end of the claim's lease; `None` for a claim that has no record.
    fn ends(&self) -> Option<Instant> {
        let placed = self.placed.as_ref().map(P::ends);
        placed.or(self.in_flight_until)
    }

    /// Whether a call is under way for a claim without a record: it may be about to find the record.
    fn is_asked(&self) -> bool {
        self.placed.is_none() && self.turn.try_lock().is_err()
    }

    /// Gives up the spot of a claim.
    fn leave(&mut self) {
        if let Some(spot) = self.spot.take() {
            spot.leave(&self.lock);
        }
    }
}

/// A claim whose lease has ended. Its record may still be there.
#[derive(Debug)]
pub(crate) struct Expired<P: Placed> {
    pub(crate) id: ClaimId,
    /// The lock that the claim was for.
    pub(crate) lock: LockKey,
    /// Where its record is, or may be.
    pub(crate) spot: P::Spot,
    /// The claim as it was known; `None` if a request may have created another record for it.
    pub(crate) placed: Option<P>,
}

/// What is known of a claim.
#[derive(Debug)]
pub enum Known<P: Placed> {
    /// It has ended, or its release was sent.
    Ended,
    /// It has a record on the server.
    Placed(Box<P>),
    /// It has no record, as far as the client knows.
    Unplaced {
        /// The spot that is reserved for it.
        spot: Option<P::Spot>,
        /// Whether a request was not answered, which may have created a record at the spot, or may still create one.
        is_in_flight: bool,
    },
}

/// What a client knows of its own claims.
#[derive(Debug)]
pub struct Table<P: Placed> {
    state: Mutex<State<P>>,
    /// Notified when a claim got an end, and when the store is closed.
    pub(crate) changed: Arc<Notify>,
}

#[derive(Debug)]
struct State<P: Placed> {
    claims: HashMap<ClaimId, Entry<P>>,
    ended: Tombstones,
    /// Why claims were lost, until the given time.
    losses: HashMap<ClaimId, (Loss, Instant)>,
    sweep_at: usize,
    is_closed: bool,
    /// Whether the claims were forgotten, after the store was closed.
    is_forgotten: bool,
}

impl<P: Placed> Default for Table<P> {
    fn default() -> Self {
        Table {
            state: Mutex::new(State {
                claims: HashMap::new(),
                ended: Tombstones::default(),
                losses: HashMap::new(),
                sweep_at: 0,
                is_closed: false,
                is_forgotten: false,
            }),
            changed: Arc::default(),
        }
    }
}

impl<P: Placed> Table<P> {
    /// Waits until no other call places or removes the claim.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the turn to others.
    pub async fn turn(&self, claim: &ClaimRef) -> OwnedMutexGuard<()> {
        let turn = {
            let mut state = self.state.lock();
            let entry = state.claims.entry(claim.id).or_insert_with(|| Entry {
                lock: claim.key.clone(),
                turn: Arc::default(),
                spot: None,
                placed: None,
                in_flight_until: None,
                is_releasing: false,
            });
            entry.turn.clone()
        };
        turn.lock_owned().await
    }

    /// Ends a turn. Leaves the claim's spot unless its record is there, or may be there. Forgets the claim if there is nothing to
    /// know about it, and no other call waits for its turn.
    pub fn end_turn(&self, id: ClaimId, turn: OwnedMutexGuard<()>) {
        let mut state = self.state.lock();
        drop(turn);
        if let Some(entry) = state.claims.get_mut(&id)
            && entry.ends().is_none()
        {
            entry.leave();
        }
        let is_unused = |entry: &Entry<P>| entry.spot.is_none() && Arc::strong_count(&entry.turn) == 1;
        if state.claims.get(&id).is_some_and(is_unused) {
            state.claims.remove(&id);
        }
    }

    /// What is known of a claim.
    pub fn know(&self, id: ClaimId) -> Known<P> {
        let state = self.state.lock();
        match state.claims.get(&id) {
            _ if state.ended.contains(id) => Known::Ended,
            Some(entry) if entry.is_releasing => Known::Ended,
            Some(Entry {
                placed: Some(placed), ..
            }) => Known::Placed(Box::new(placed.clone())),
            entry => Known::Unplaced {
                spot: entry.and_then(|entry| entry.spot.clone()),
                is_in_flight: entry.is_some_and(|entry| entry.in_flight_until.is_some()),
            },
        }
    }

    /// Returns where the claim is placed, if this client has placed it.
    pub fn placed(&self, id: ClaimId) -> Option<P> {
        let state = self.state.lock();
        let entry = state.claims.get(&id).filter(|entry| !entry.is_releasing)?;
        entry.placed.clone()
    }

    /// Reserves a spot for a claim.
    pub fn reserve(&self, id: ClaimId, spot: &P::Spot) {
        let mut state = self.state.lock();
        if !state.is_forgotten
            && let Some(entry) = state.claims.get_mut(&id)
        {
            entry.spot = Some(spot.clone());
        }
    }

    /// Notes that a request to place the claim was not answered. It is withdrawn at `until`, or when the lease of the claim ends if
    /// another request has placed it.
    pub fn unanswered(&self, id: ClaimId, until: Instant) {
        self.with(id, |entry| entry.in_flight_until = Some(until));
        self.changed.notify_one();
    }

    /// Records that no request is in flight.
    pub fn answered(&self, id: ClaimId) {
        self.with(id, |entry| entry.in_flight_until = None);
    }

    /// Records the claim's record. Returns false if the claim has ended meanwhile: then its record is withdrawn.
    pub fn place(&self, id: ClaimId, placed: P) -> bool {
        let is_placed = {
            let mut state = self.state.lock();
            let is_over = state.is_forgotten || state.ended.contains(id);
            let entry = state.claims.get_mut(&id).filter(|_| !is_over);
            entry.map(|entry| entry.placed = Some(placed)).is_some()
        };
        self.changed.notify_one();
        is_placed
    }

    /// Records that the claim's record was removed, or never written. Keeps the spot if a request is in flight.
    pub fn unplace(&self, id: ClaimId) {
        self.with(id, |entry| {
            entry.placed = None;
            if entry.in_flight_until.is_none() {
                entry.leave();
            }
        });
    }

    /// Forgets a spot at which nothing can be written. No other claim on the lock gets it.
    pub fn abandon(&self, id: ClaimId) {
        self.with(id, |entry| (entry.spot, entry.in_flight_until) = (None, None));
    }

    /// Changes a placed claim, unless it was removed or placed again meanwhile. Returns false if so.
    pub fn update(&self, id: ClaimId, created: i64, change: impl FnOnce(&mut P)) -> bool {
        let mut state = self.state.lock();
        let entry = state.claims.get_mut(&id).filter(|entry| !entry.is_releasing);
        let placed = entry.and_then(|entry| entry.placed.as_mut());
        let placed = placed.filter(|placed| placed.created() == created);
        placed.map(change).is_some()
    }

    /// Records a renewal that a request has confirmed, and returns the reply to it. `sent` is when the request was sent. `asked`
    /// returns the end that the renewal asks for.
    ///
    /// If a request that was sent later has restarted the lease, this renewal changes nothing, and the reply has the later lease.
    pub fn renewed(
        &self,
        request: &RenewRequest,
        created: i64,
        sent: Instant,
        asked: impl FnOnce(&P) -> Instant,
    ) -> RenewReply {
        let (id, mut renewed) = (request.claim.id, None);
        self.update(id, created, |placed| {
            let asked = asked(placed);
            let lease = placed.own_lease_mut();
            renewed = Some(lease.restart(ClaimLease {
                held_from: sent,
                ends: request.end(lease.ends, asked),
            }));
        });
        match renewed {
            Some(lease) => RenewReply::Alive {
                held_from: lease.held_from,
                lease: lease.length(),
            },
            None => self.gone(id),
        }
    }

    /// Marks the claim as being released. Returns where it is placed, and the spot of a request that was not answered.
    pub fn begin_release(&self, id: ClaimId) -> (Option<P>, Option<P::Spot>) {
        let mut state = self.state.lock();
        let Some(entry) = state.claims.get_mut(&id) else {
            return (None, None);
        };
        entry.is_releasing = true;
        let in_flight = entry.spot.clone().filter(|_| entry.in_flight_until.is_some());
        (entry.placed.clone(), in_flight)
    }

    /// Undoes `begin_release`, after the server refused the release without effect.
    pub fn cancel_release(&self, id: ClaimId) {
        self.with(id, |entry| entry.is_releasing = false);
    }

    /// Records that the claim has ended, and why if it was lost. Remembers that for the given time. A request of a lost claim that
    /// was not answered is withdrawn later.
    pub fn end(&self, id: ClaimId, now: Instant, lost: Option<(Loss, Duration)>) {
        let mut state = self.state.lock();
        if let Some(entry) = state.claims.get_mut(&id) {
            entry.placed = None;
            if lost.is_none() || entry.in_flight_until.is_none() {
                entry.in_flight_until = None;
                entry.leave();
            }
        }
        state.ended(id, now, lost);
    }

    /// Ends the claims that have records at the spots that `is_lost` picks.
    ///
    /// The table is locked while it calls a closure, here and in [`update`](Table::update) and [`locks_at`](Table::locks_at).
    pub fn end_all(&self, is_lost: impl Fn(&P::Spot) -> bool, now: Instant, lost: &(Loss, Duration)) {
        let mut state = self.state.lock();
        let entries = state.claims.iter_mut();
        let ended: Vec<ClaimId> = entries
            .filter_map(|(id, entry)| entry.placed.take_if(|placed| is_lost(placed.spot())).map(|_| *id))
            .collect();
        for id in ended {
            if let Some(entry) = state.claims.get_mut(&id) {
                entry.in_flight_until = None;
                entry.leave();
            }
            state.ended(id, now, Some(lost.clone()));
        }
    }

    /// Why the claim was lost, as far as the table remembers.
    pub fn loss(&self, id: ClaimId) -> Loss {
        let state = self.state.lock();
        let lost = state.losses.get(&id);
        lost.map_or(Loss::Missing, |(loss, _)| loss.clone())
    }

    /// The reply to a renewal of a claim that is no more.
    pub fn gone(&self, id: ClaimId) -> RenewReply {
        match self.check_open() {
            Ok(()) => RenewReply::Gone(self.loss(id)),
            Err(closed) => RenewReply::Unknown(closed),
        }
    }

    /// Fails if the claims were forgotten, so that nothing is known of them.
    ///
    /// # Errors
    /// `Closed`, with an unknown effect.
    pub fn check_open(&self) -> Result<(), BackendError> {
        if !self.state.lock().is_forgotten {
            return Ok(());
        }
        let message = "this connection to the store was closed during the call";
        Err(BackendError::new(Fault::Closed, Effect::Unknown, message))
    }

    /// The locks of the claims whose spots `is_asked` picks.
    pub fn locks_at(&self, is_asked: impl Fn(&P::Spot) -> bool) -> Vec<LockKey> {
        let state = self.state.lock();
        let is_at = |entry: &&Entry<P>| entry.spot.as_ref().is_some_and(&is_asked);
        let entries = state.claims.values().filter(is_at);
        entries.map(|entry| entry.lock.clone()).collect()
    }

    /// The lock that a claim is for.
    pub fn lock_of(&self, id: ClaimId) -> Option<LockKey> {
        let state = self.state.lock();
        state.claims.get(&id).map(|entry| entry.lock.clone())
    }

    /// Lets the task return that ends claims. Calls that are under way go on.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Forgets all claims after [`close`](Table::close), and so their spots. Calls that are under way end with an error.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.is_forgotten = true;
        state.claims.clear();
    }

    /// Returns whether [`close`](Table::close) was called.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// The first end of a claim that has a record, or may have one.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.claims.values().filter_map(Entry::ends).min()
    }

    /// Ends the claims whose leases have ended. The caller removes their records, and then leaves their spots. The record of a
    /// claim that a call may be about to replace is looked for by the claim's ID, as is that of a request in flight.
    pub(crate) fn expire(&self, now: Instant, remembered: Duration) -> Vec<Expired<P>> {
        let mut state = self.state.lock();
        let mut expired = Vec::new();
        let mut ids = Vec::new();
        for (id, entry) in &mut state.claims {
            if entry.ends().is_some_and(|ends| ends <= now) && !entry.is_asked() {
                let is_known = entry.in_flight_until.take().is_none() && entry.turn.try_lock().is_ok();
                let placed = entry.placed.take().filter(|_| is_known);
                expired.extend(entry.spot.take().map(|spot| Expired {
                    id: *id,
                    lock: entry.lock.clone(),
                    spot,
                    placed,
                }));
                ids.push(*id);
            }
        }
        for id in ids {
            state.ended(id, now, Some((Loss::Expired, remembered)));
        }
        expired
    }

    fn with(&self, id: ClaimId, change: impl FnOnce(&mut Entry<P>)) {
        if let Some(entry) = self.state.lock().claims.get_mut(&id) {
            change(entry);
        }
    }
}

impl<P: Placed> State<P> {
    fn ended(&mut self, id: ClaimId, now: Instant, lost: Option<(Loss, Duration)>) {
        self.ended.insert(id, now);
        if let Some((loss, remembered)) = lost {
            if self.losses.len() >= self.sweep_at.max(MIN_SWEEP) {
                self.losses.retain(|_, (_, until)| now < *until);
                self.sweep_at = self.losses.len() * 2;
            }
            self.losses.entry(id).or_insert((loss, now + remembered));
        }
        let is_unused =
            |entry: &Entry<P>| entry.in_flight_until.is_none() && Arc::strong_count(&entry.turn) == 1;
        if self.claims.get(&id).is_some_and(is_unused) {
            self.claims.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests;
