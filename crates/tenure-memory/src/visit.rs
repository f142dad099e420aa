//! What a visit to a key brings along: the time, the store's counters, and a list of whom to wake afterwards.

use smallvec::SmallVec;
use tenure_backend::{ClaimId, Instant, Loss, Tombstones, WakeSignal};

use crate::fates::Fates;
use crate::tokens::Tokens;

/// One moment on two clocks, read while the store is locked and before it acts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// On the store's clock, which counts all leases.
    pub(crate) now: Instant,
    /// On the clock of the client that asks.
    pub(crate) asked: Instant,
}

/// Whom to wake once the store is unlocked.
pub(crate) type Bells = SmallVec<[WakeSignal; 2]>;

/// One visit to one key: everything a [`Room`](crate::room::Room) needs from outside.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    pub(crate) at: Moment,
    pub(crate) tokens: &'a mut Tokens,
    pub(crate) ended: &'a mut Tombstones,
    pub(crate) fates: &'a mut Fates,
    pub(crate) signals: &'a mut Bells,
    /// Whether somebody left the key or its queue in this visit, so that others may go.
    pub(crate) freed: bool,
}

impl Visit<'_> {
    /// Writes down that the claim has ended, for good.
    pub(crate) fn end(&mut self, id: ClaimId) {
        self.ended.insert(id, self.at.now);
    }

    /// Writes down that the claim's lease ended without a renewal.
    pub(crate) fn expire(&mut self, id: ClaimId) {
        self.end(id);
        let until = Fates::explained_until(self.at.now);
        self.fates.explain(id, Loss::Expired, until);
        self.freed = true;
    }
}
