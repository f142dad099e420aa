//! What people and tools see of a store's locks. Never asked to decide who holds.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::{FencingToken, HolderId, Kind, LockKey, Mode};

/// Which keys to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One key.
    Key(LockKey),
    /// Every key with holders or waiters that begins so, in an order of the store's own.
    Prefix {
        /// The beginning; empty for all keys.
        prefix: Arc<str>,
        /// Where the page before ended.
        after: Option<Cursor>,
        /// How many keys a page has at the most.
        limit: NonZeroU32,
    },
}

/// A place in a long listing. Its text is the store's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Arc<str>);

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What was found. A key that nobody holds or waits for is not among it.
    pub items: Vec<T>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Cursor>,
}

/// One key, as it stood when the store looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStatus {
    /// Its name.
    pub key: LockKey,
    /// What it is used as.
    pub kind: Kind,
    /// Who holds it.
    pub holders: Vec<HolderStatus>,
    /// Who queues for it, in order; `None` where the store cannot tell.
    pub waiters: Option<Vec<WaiterStatus>>,
}

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderStatus {
    /// Its name, as eviction takes it; foreign names are another kind of client's.
    pub id: HolderId,
    /// What it calls itself, where the layout records that.
    pub label: Option<Arc<str>>,
    /// How it holds the key.
    pub mode: Mode,
    /// The grant's token, or the first one of its run.
    pub token: Option<FencingToken>,
    /// What is left of its lease, rounded up to what the store can tell; `None` where liveness is a session, or the
    /// store cannot tell.
    pub remaining: Option<Duration>,
}

/// One waiter in the store's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterStatus {
    /// Its name, as eviction takes it.
    pub id: HolderId,
    /// What it calls itself, where the layout records that.
    pub label: Option<Arc<str>>,
    /// How it wants to hold the key.
    pub mode: Mode,
}
