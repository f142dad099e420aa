//! Release: unlock, withdrawal and eviction are one operation with different causes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{BackendError, Batch, Claim, ClaimId, ClaimRef, Instant, LockKey, Standing};

/// A wish to make one holder or waiter absent.
#[derive(Clone, Debug)]
pub struct Departure {
    /// Who goes.
    pub who: Holder,
    /// Why.
    pub cause: Cause,
    /// Who may take over within the same atomic step. Only with `Holder::Claim`, and of the same key.
    pub heir: Option<Heir>,
    /// The key then admits nobody for so long: [`PASS_WINDOW`](crate::PASS_WINDOW) for an eviction, else zero.
    ///
    /// A store that grants one token per claim may ignore it.
    pub bar: Duration,
}

/// A claim that waits in the releasing client, and may be granted by the release itself.
#[derive(Clone, Debug)]
pub struct Heir {
    /// The claim. It is placed as `acquire` would place it, after the departure.
    pub claim: Arc<Claim>,
    /// As for `acquire`: after this moment it is not placed, and answered `TooLate`.
    pub place_by: Instant,
}

/// Who departs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A claim of ours, waiting or granted.
    Claim(ClaimRef),
    /// Another kind of client's hold: a Java thread, a row of another tool.
    Foreign {
        /// The key it holds.
        key: LockKey,
        /// The store's name for it, as [`HolderId::Foreign`] shows it.
        id: Arc<str>,
    },
    /// Everybody who holds the key. Waiters stay.
    All(LockKey),
}

impl Holder {
    /// The key concerned.
    pub fn key(&self) -> &LockKey {
        match self {
            Holder::Claim(claim) => &claim.key,
            Holder::Foreign { key, .. } | Holder::All(key) => key,
        }
    }
}

/// The name of a holder, as people see it and as `tenure evict --claim` takes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HolderId {
    /// A claim of ours.
    Claim(ClaimId),
    /// The store's name for another kind of client's hold.
    Foreign(Arc<str>),
}

impl HolderId {
    /// Reads what `Display` wrote: a claim if the text is one, else a foreign name.
    pub fn parse(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| HolderId::Foreign(Arc::from(text)), HolderId::Claim)
    }

    /// The holder of that name on a key.
    pub fn on(self, key: LockKey) -> Holder {
        match self {
            HolderId::Claim(id) => Holder::Claim(ClaimRef { key, id }),
            HolderId::Foreign(id) => Holder::Foreign { key, id },
        }
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HolderId::Claim(id) => fmt::Display::fmt(id, f),
            HolderId::Foreign(id) => f.write_str(id),
        }
    }
}

/// Why somebody departs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The holder is done.
    Unlocked,
    /// The client gave the claim up: a guard or a waiting future was dropped, or a wait timed out.
    Withdrawn,
    /// Somebody else takes it away; the holder learns at its next renewal.
    Evicted {
        /// Who, for the holder to read.
        by: Option<Arc<str>>,
    },
}

/// What became of one departure.
#[derive(Debug)]
pub enum Released {
    /// Whoever was named is absent.
    Done {
        /// Who held the key or queued for it and is gone by this very call; empty on a repetition.
        freed: Batch<HolderId>,
        /// How many wait elsewhere, not for this client; `None` where the store cannot tell. It may count one who has
        /// just gone.
        others: Option<u32>,
        /// Where the heir stands, if there was one.
        heir: Option<Standing>,
    },
    /// Nobody knows whether it took effect. Repeating it is safe.
    Unknown(BackendError),
}
