//! What an operation on one key needs besides the key's state: time, tokens, the record of ended claims, and signals.

use smallvec::SmallVec;
use tenure_backend::{ClaimId, ClientId, Instant, Loss, Tombstones, WakeSignal};

use crate::losses::Losses;
use crate::tokens::Tokens;

/// The time of one operation on two clocks, both read under the store's lock before the operation starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Reading of the store's clock, on which all leases are counted.
    pub(crate) now: Instant,
    /// Reading of the calling client's clock.
    pub(crate) client_now: Instant,
}

/// The signals to notify once the store is unlocked.
pub(crate) type Signals = SmallVec<[WakeSignal; 2]>;

/// One operation on one key, with everything that it needs besides the key's state.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    pub(crate) at: Moment,
    pub(crate) tokens: &'a mut Tokens,
    pub(crate) ended: &'a mut Tombstones,
    pub(crate) losses: &'a mut Losses,
    pub(crate) signals: &'a mut Signals,
    /// Whether a claim stopped holding, queueing or reserving the key, or was downgraded, so that waiting claims may be
    /// granted.
    pub(crate) freed: bool,
    /// The client whose claim this operation releases. Its own waiters get no turn while another client waits.
    pub(crate) releaser: Option<ClientId>,
}

impl Operation<'_> {
    pub(crate) fn record_end(&mut self, id: ClaimId) {
        self.ended.insert(id, self.at.now);
    }

    pub(crate) fn record_expiry(&mut self, id: ClaimId) {
        self.record_end(id);
        let until = Losses::expiry_known_until(self.at.now);
        self.losses.record(id, Loss::Expired, until);
        self.freed = true;
    }
}
