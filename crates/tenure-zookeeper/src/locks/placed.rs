//! Where the claims of this client are placed, and what those that wait for.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Instant, TokenRange};
use tenure_contenders::{ClaimLease, Value};

use super::contenders::Target;
use super::names::parent;
use super::sessions::Session;
use crate::client::Op;

/// Where the nodes of a claim are created: in a session, and below a node.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) session: Arc<Session>,
    pub(super) folder: String,
}

/// The nodes of a claim, as this client knows them.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    /// One; or one for each permit that the claim holds; or its own one, and the lock's node. An eviction marks the first.
    pub(super) paths: Vec<String>,
    /// Number of the change that created the nodes.
    pub(super) czxid: i64,
    /// Version of the first node. An eviction changes it.
    pub(super) version: i32,
    /// When the last request was sent whose reply proves that the claim was not evicted.
    pub(super) proved_at: Instant,
}

impl Nodes {
    /// The conditions that the claim was not evicted, and that its nodes were not deleted. Two nodes are enough: only by hand are
    /// they deleted one by one.
    pub(super) fn unchanged(&self) -> Vec<Op> {
        self.each(Op::Check).take(2).collect()
    }

    /// Deletes the nodes, if the claim was not evicted.
    pub(super) fn deletes(&self) -> Vec<Op> {
        self.each(Op::Delete).collect()
    }

    fn each(&self, op: fn(String, Option<i32>) -> Op) -> impl Iterator<Item = Op> {
        let version_of = |at| (at == 0).then_some(self.version);
        let paths = self.paths.iter().enumerate();
        paths.map(move |(at, path)| op(path.clone(), version_of(at)))
    }
}

/// A claim that has a node in ZooKeeper.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) spot: Spot,
    pub(super) nodes: Nodes,
    /// What this client wrote.
    pub(super) value: Value,
    /// The tokens, once the claim holds its lock.
    pub(super) granted: Option<TokenRange>,
    /// What the claim waits for, by its last poll.
    pub(super) target: Option<Target>,
    /// The lease that the claim asked for when it was placed.
    pub(super) asked: Duration,
    /// The claim's own lease, as it was answered last. Its session lasts longer, with other claims.
    pub(super) own_lease: ClaimLease,
}

impl Placed {
    /// Whether the nodes themselves are what the claim holds, permits or the lock's only node: they lie outside the folder in which
    /// contenders queue.
    pub(super) fn has_left_queue(&self) -> bool {
        parent(&self.nodes.paths[0]) != self.spot.folder
    }

    /// The end of the claim's lease after a request that was sent at `sent`. A holder's ends with what is proved of its session; a
    /// waiter need not know when its session ends.
    pub(super) fn ends_after(&self, sent: Instant, asked: Duration, is_granted: bool) -> Instant {
        let session = &self.spot.session;
        let timeout = session.timeout();
        let lease = match asked < self.asked {
            true => asked.min(timeout),
            false => timeout,
        };
        match is_granted {
            true => (sent + lease).min(session.counts_from() + timeout),
            false => sent + lease,
        }
    }
}

impl tenure_contenders::Spot for Spot {
    fn shares(&self, other: &Spot) -> bool {
        Arc::ptr_eq(&self.session, &other.session)
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
        self.nodes.czxid
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
