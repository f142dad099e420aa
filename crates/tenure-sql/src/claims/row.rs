//! One claim's row: its phases and what its columns mean.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Claim, ClaimId, Instant, MAX_NOT_AFTER, Mode, TokenRange};

/// What a row says about its claim. The numbers are what the database keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It was released or withdrawn, or will never be placed. ViewCache so that it is not placed again.
    Ended = 0,
    /// It was taken away. ViewCache so that its holder learns by whom, and to cooldown the key.
    Evicted = 1,
    /// An unfair claim that was refused, whose client has asked to be woken. It has no say over the key but for
    /// the moment of its turn.
    Watching = 2,
    /// It has a place in the queue.
    Waiting = 3,
    /// It holds the key.
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

/// One claim on the key of its [`View`](super::View).
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: ClaimId,
    pub(crate) phase: Phase,
    pub(crate) mode: Mode,
    /// Waiting: its place in the queue. Watching: since when, in nanoseconds of the store's clock.
    pub(crate) position: i64,
    /// From when on the row says nothing any more: the lease's end; of an ended claim, when it may be forgotten.
    pub(crate) expires_at: Instant,
    /// Watching: the end of its turn, for which the key is kept; past or [`Instant::ORIGIN`]: it has none.
    /// Evicted: until when the key admits nobody.
    pub(crate) reserved_until: Instant,
    pub(crate) tokens: Option<TokenRange>,
    pub(crate) label: Arc<str>,
    /// Evicted: by whom.
    pub(crate) evictor: Option<Arc<str>>,
}

impl Row {
    /// A row of that claim, without tokens or a turn.
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

    /// Whether its lease lasts.
    pub(crate) fn is_unexpired(&self, now: Instant) -> bool {
        now < self.expires_at
    }

    /// Whether the claim has ended for good: released, evicted, or expired while it held or queued.
    pub(crate) fn has_ended(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Ended | Phase::Evicted => true,
            Phase::Waiting | Phase::Granted => !self.is_unexpired(now),
            Phase::Watching => false,
        }
    }

    /// From when on the row may be deleted: a claim whose lease ran out is remembered like one that was released.
    pub(crate) fn forget_at(&self) -> Instant {
        match self.phase {
            Phase::Waiting | Phase::Granted => self.expires_at + MAX_NOT_AFTER,
            Phase::Ended | Phase::Evicted | Phase::Watching => self.expires_at,
        }
    }

    /// The latest time in the row. A write keeps how far it lies ahead, as the row's lease.
    pub(crate) fn latest(&self) -> Instant {
        self.forget_at().max(self.reserved_until)
    }

    /// Whether the clock was started again after the row was written, as it is with the machine: within one run of
    /// the clock, no time of a row lies further ahead than the lease that was written with it.
    pub(crate) fn is_of_earlier_boot(&self, lease: Duration, now: Instant) -> bool {
        self.latest() - now > lease
    }

    /// Whether it was given a turn, did not come, and has not been heard of since: perhaps its process is gone.
    pub(crate) fn missed_reservation(&self, now: Instant) -> bool {
        self.reserved_until != Instant::ORIGIN && self.reserved_until <= now
    }
}
