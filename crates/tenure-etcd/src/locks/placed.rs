//! Where the claims of this client are placed, and what those that wait for.

use std::sync::Arc;

use tenure_backend::{Instant, LockKey, TokenRange};
use tenure_contenders::Value;

use super::leases::Lease;
use super::requests::{created, modified};
use crate::client::Compare;

/// A place for a claim: its key, and the lease that the key is named by.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) lease: Arc<Lease>,
    pub(super) key: Vec<u8>,
}

/// A claim that has a key in etcd.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) spot: Spot,
    /// What this client wrote last.
    pub(super) value: Value,
    /// Revision that created the key.
    pub(super) created: i64,
    /// Revision of this client's last write of the key. An eviction changes the key.
    pub(super) modified: i64,
    /// The tokens, once the claim holds its lock.
    pub(super) granted: Option<TokenRange>,
    /// What the claim waits for, by its last poll.
    pub(super) found: Found,
    /// End of the claim's own lease. The lease in etcd lasts longer while other claims on it are renewed.
    pub(super) ends: Instant,
}

/// What a waiting claim waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Target {
    /// Any contender of the lock to leave, or to change its mode.
    #[default]
    Folder,
    /// The contender with this key.
    Key(Vec<u8>),
}

/// A target, and the revision at which a poll has found it. Two are equal if their targets are: the revision does not concern a
/// watch that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    pub(super) target: Target,
    pub(super) revision: i64,
}

impl PartialEq for Found {
    fn eq(&self, other: &Self) -> bool {
        self.target == other.target
    }
}

impl Placed {
    /// The conditions that the key is as this client wrote it last.
    pub(super) fn unchanged(&self) -> Vec<Compare> {
        let key = &self.spot.key;
        vec![created(key, self.created), modified(key, self.modified)]
    }
}

impl tenure_contenders::Spot for Spot {
    fn leave(&self, lock: &LockKey) {
        self.lease.free(lock);
    }
}

impl tenure_contenders::Placed for Placed {
    type Spot = Spot;

    fn spot(&self) -> &Spot {
        &self.spot
    }

    fn value(&self) -> &Value {
        &self.value
    }

    fn created(&self) -> i64 {
        self.created
    }

    fn granted(&self) -> Option<TokenRange> {
        self.granted
    }

    fn ends(&self) -> Instant {
        self.ends
    }
}
