//! Where the claims of this client are placed, and what those that wait for.

use std::sync::Arc;

use tenure_backend::{LockKey, TokenRange};
use tenure_contenders::{ClaimLease, Value};

use super::leases::Lease;
use super::requests::{created, modified};
use crate::client::Compare;

/// A place for a claim: its key, and the lease that the key is named by.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) lease: Arc<Lease>,
    pub(super) key: Vec<u8>,
}

/// What a waiting claim waits for: that the contender with this key leaves. `None` for any contender of the lock that leaves, or
/// changes its mode.
pub(super) type Target = Option<Vec<u8>>;

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
    pub(super) target: Target,
    /// Revision at which that poll has found the target; 0 before the first.
    pub(super) found_at: i64,
    /// The claim's own lease. The lease in etcd lasts longer while other claims on it are renewed.
    pub(super) own_lease: ClaimLease,
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

    fn shares(&self, other: &Spot) -> bool {
        self.lease.id == other.lease.id
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

    fn own_lease(&self) -> &ClaimLease {
        &self.own_lease
    }

    fn own_lease_mut(&mut self) -> &mut ClaimLease {
        &mut self.own_lease
    }
}
