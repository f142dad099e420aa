//! The row of one claim: its phase and its other columns.

use std::sync::Arc;

use tenure_backend::{Claim, ClaimId, Instant, MAX_NOT_AFTER, Mode, TokenRange};

/// The phase of a claim. The numbers are stored in the column `phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The claim was released or withdrawn, or it was evicted while it neither held the key nor queued. The row stays
    /// for a while, so that a late acquire cannot place the claim again.
    Ended = 0,
    /// The claim was evicted. The row stays to tell its holder the evictor's name, and to enforce the cooldown.
    Evicted = 1,
    /// A watcher, i.e. an unfair claim that was not granted and wants wake-ups. It blocks other claims only while the
    /// key is reserved for it.
    Watching = 2,
    /// The claim is fair and waits in the queue.
    Waiting = 3,
    /// The claim holds the key.
    Granted = 4,
}

impl Phase {
    pub(crate) fn from_number(number: i64) -> Option<Self> {
        [
            Phase::Ended,
            Phase::Evicted,
            Phase::Watching,
            Phase::Waiting,
            Phase::Granted,
        ]
        .into_iter()
        .find(|phase| *phase as i64 == number)
    }
}

/// One row of the table `claim`. The key is in its [`View`](super::View).
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: ClaimId,
    pub(crate) phase: Phase,
    pub(crate) mode: Mode,
    /// Waiting: the position in the queue. Watching: the time of registration, in nanoseconds of the store's clock.
    pub(crate) position: i64,
    /// Waiting, granted: the end of the lease. Ended, evicted: the time from which the row may be deleted. Watching:
    /// the end of the registration.
    pub(crate) expires_at: Instant,
    /// Watching: the end of the key's reservation for this claim, in the past if the claim has missed it;
    /// [`Instant::ORIGIN`] without a reservation. Evicted: the end of the cooldown.
    pub(crate) reserved_until: Instant,
    pub(crate) tokens: Option<TokenRange>,
    pub(crate) label: Arc<str>,
    /// Evicted: the name of the evictor, if it gave one.
    pub(crate) evictor: Option<Arc<str>>,
}

impl Row {
    /// Makes a row for this claim, without tokens or a reservation.
    pub(crate) fn new(claim: &Claim, phase: Phase, position: i64, expires_at: Instant) -> Self {
        Row {
            id: claim.at.id,
            phase,
            mode: claim.mode,
            position,
            expires_at,
            reserved_until: Instant::ORIGIN,
            tokens: None,
            label: claim.label.clone(),
            evictor: None,
        }
    }

    /// Returns whether the claim's lease, or the watcher's registration, has not ended.
    pub(crate) fn is_unexpired(&self, now: Instant) -> bool {
        now < self.expires_at
    }

    /// Returns whether the claim has ended for good: released, evicted, or expired while granted or queued.
    pub(crate) fn has_ended(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Ended | Phase::Evicted => true,
            Phase::Waiting | Phase::Granted => !self.is_unexpired(now),
            Phase::Watching => false,
        }
    }

    /// Time from which the row may be deleted. An expired claim is remembered for 10 s after its lease, so that a late
    /// acquire cannot place it again.
    pub(crate) fn forget_at(&self) -> Instant {
        match self.phase {
            Phase::Waiting | Phase::Granted => self.expires_at + MAX_NOT_AFTER,
            Phase::Ended | Phase::Evicted | Phase::Watching => self.expires_at,
        }
    }

    /// Returns whether this unfair waiter let a reservation of the key pass without a poll. Its process may be dead.
    pub(crate) fn missed_reservation(&self, now: Instant) -> bool {
        self.reserved_until != Instant::ORIGIN && self.reserved_until <= now
    }
}
