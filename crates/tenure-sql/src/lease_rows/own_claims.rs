//! This client's knowledge of its own claims: which it holds, which have ended, and which have a request that may still
//! arrive. The table remembers none of that.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Claim, ClaimId, Instant, TokenRange, Tombstones};

/// A claim that was refused is forgotten after this time without a poll.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// With fewer entries than this, the table does not sweep.
const MIN_SWEEP: usize = 64;

/// The shortest and the longest pause between two polls, and the part of the time waited that lies between.
const SHORTEST_POLL: Duration = Duration::from_millis(5);
const LONGEST_POLL: Duration = Duration::from_millis(250);
const PART_OF_WAIT: u32 = 10;

#[derive(Default)]
pub(super) struct OwnClaims(Mutex<State>);

#[derive(Default)]
struct State {
    claims: HashMap<ClaimId, Entry>,
    ended: Tombstones,
    held: usize,
    sweep_at: usize,
}

struct Entry {
    /// When the claim asked first.
    since: Instant,
    asked: Instant,
    /// The tokens, if the claim holds its key. `Some(None)` on a layout without tokens.
    granted: Option<Option<TokenRange>>,
    /// Number of requests that may take the row and were not answered yet.
    in_flight: u32,
    /// Latest time at which a request that was given up may take the row.
    may_arrive_until: Instant,
    releasing: bool,
}

/// What is known of a claim that wants its key.
#[derive(Debug, PartialEq)]
pub(super) enum Known {
    Ended,
    Granted(Option<TokenRange>),
    /// Only the database knows.
    Nothing,
}

impl OwnClaims {
    /// Notes that a request for the claim's key will be sent, unless its answer is known.
    pub(super) fn begin(&self, claim: &Claim, now: Instant) -> Known {
        let mut state = self.0.lock();
        if state.ended.contains(claim.at.id) {
            return Known::Ended;
        }
        state.sweep(now);
        let entry = state.claims.entry(claim.at.id).or_insert_with(|| Entry {
            since: now,
            asked: now,
            granted: None,
            in_flight: 0,
            may_arrive_until: Instant::ORIGIN,
            releasing: false,
        });
        match entry.granted {
            _ if entry.releasing => Known::Ended,
            Some(tokens) => Known::Granted(tokens),
            None => {
                entry.asked = now;
                entry.in_flight += 1;
                Known::Nothing
            }
        }
    }

    /// Records the answer to a request: the tokens if it was granted. Returns whether the claim has been released meanwhile.
    pub(super) fn answered(&self, id: ClaimId, granted: Option<Option<TokenRange>>) -> bool {
        let mut state = self.0.lock();
        let Some(entry) = state.claims.get_mut(&id) else {
            return true;
        };
        entry.in_flight -= 1;
        let is_released = entry.releasing;
        if granted.is_some() && entry.granted.is_none() {
            entry.granted = granted;
            state.held += 1;
        }
        is_released
    }

    /// Records that a request was given up, which may still take the row until `not_after`.
    pub(super) fn unanswered(&self, id: ClaimId, not_after: Instant) {
        if let Some(entry) = self.0.lock().claims.get_mut(&id) {
            entry.in_flight -= 1;
            entry.may_arrive_until = entry.may_arrive_until.max(not_after);
        }
    }

    /// Returns whether the claim may hold its row: another request of it was granted, or has no answer yet.
    pub(super) fn may_hold(&self, id: ClaimId) -> bool {
        let state = self.0.lock();
        let entry = state.claims.get(&id);
        entry.is_some_and(|entry| {
            entry.granted.is_some() || entry.in_flight > 1 || entry.may_arrive_until > Instant::ORIGIN
        })
    }

    /// The pause before the claim's next poll: a tenth of the time that it has waited.
    pub(super) fn poll_after(&self, id: ClaimId, now: Instant) -> Duration {
        let state = self.0.lock();
        let waited = state
            .claims
            .get(&id)
            .map_or(Duration::ZERO, |entry| now - entry.since);
        (waited / PART_OF_WAIT).clamp(SHORTEST_POLL, LONGEST_POLL)
    }

    /// Marks a claim as being released. Returns until when a request of the claim may still take the row, if any may.
    pub(super) fn begin_release(&self, id: ClaimId, not_after: Instant) -> Option<Instant> {
        let mut state = self.0.lock();
        let entry = state.claims.get_mut(&id)?;
        entry.releasing = true;
        let until = match entry.in_flight {
            0 => entry.may_arrive_until,
            _ => not_after,
        };
        (until > entry.asked).then_some(until)
    }

    /// Undoes `begin_release`, after the database refused the release without effect.
    pub(super) fn cancel_release(&self, id: ClaimId) {
        if let Some(entry) = self.0.lock().claims.get_mut(&id) {
            entry.releasing = false;
        }
    }

    /// Records that the claim has ended: it was released, or the database no longer has it. Returns whether a claim is held.
    pub(super) fn end(&self, id: ClaimId, now: Instant) -> bool {
        let mut state = self.0.lock();
        let entry = state.claims.remove(&id);
        if entry.is_some_and(|entry| entry.granted.is_some()) {
            state.held -= 1;
        }
        state.ended.insert(id, now);
        state.held > 0
    }

    /// Returns whether the claim was granted, as far as this client knows.
    pub(super) fn is_granted(&self, id: ClaimId) -> bool {
        let state = self.0.lock();
        state.claims.get(&id).is_some_and(|entry| entry.granted.is_some())
    }

    /// Records that a renewal has raised the tokens of a claim.
    pub(super) fn raise(&self, id: ClaimId, tokens: TokenRange) {
        if let Some(entry) = self.0.lock().claims.get_mut(&id) {
            entry.granted = entry.granted.map(|_| Some(tokens));
        }
    }
}

impl State {
    fn sweep(&mut self, now: Instant) {
        if self.claims.len() < self.sweep_at.max(MIN_SWEEP) {
            return;
        }
        self.claims.retain(|_, entry| {
            entry.granted.is_some()
                || entry.in_flight > 0
                || now < entry.asked.max(entry.may_arrive_until) + FORGET_AFTER
        });
        self.sweep_at = self.claims.len() * 2;
    }
}
