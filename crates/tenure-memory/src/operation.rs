//! What an operation on one key needs besides the key's state: the time, the store's counters, and a list of signals.

use smallvec::SmallVec;
use tenure_backend::{ClaimId, Instant, Loss, Tombstones, WakeSignal};

use crate::losses::Losses;
use crate::tokens::Tokens;

/// One moment on two clocks, read while the store is locked and before the operation starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// On the store's clock, which counts all leases.
    pub(crate) now: Instant,
    /// On the clock of the client that calls.
    pub(crate) client_now: Instant,
}

/// The signals to notify once the store is unlocked.
pub(crate) type Signals = SmallVec<[WakeSignal; 2]>;

/// One operation on one key, with everything from outside that a [`KeyState`](crate::key_state::KeyState) needs for it.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) at: Moment,
    pub(crate) tokens: &'a mut Tokens,
    pub(crate) ended: &'a mut Tombstones,
    pub(crate) losses: &'a mut Losses,
    pub(crate) signals: &'a mut Signals,
    /// Whether a claim left the key, its queue or a reservation, so that other claims may go.
    pub(crate) freed: bool,
}

impl Operation<'_> {
    /// Records that the claim has ended for good.
    pub(crate) fn record_end(&mut self, id: ClaimId) {
        self.ended.insert(id, self.at.now);
    }

    /// Records that the claim's lease has ended without a renewal.
    pub(crate) fn record_expiry(&mut self, id: ClaimId) {
        self.record_end(id);
        let until = Losses::expiry_known_until(self.at.now);
        self.losses.record(id, Loss::Expired, until);
        self.freed = true;
    }
}
