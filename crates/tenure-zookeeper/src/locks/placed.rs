//! Where the claims of this client are placed, and what those that wait for.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Instant, Mode, TokenRange};
use tenure_contenders::Value;

use super::names::parent;
use super::sessions::Session;
use crate::client::Op;

/// Where the nodes of a claim are created: in a session, and below a node.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    pub(super) session: Arc<Session>,
    pub(super) folder: String,
}

/// A claim that has a node in ZooKeeper.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) spot: Spot,
    /// The claim's nodes: one; or one for each permit that it holds; or its own one, and the lock's node. An eviction marks the
    /// first.
    pub(super) nodes: Vec<String>,
    /// Version of the first node, as this client knows it. An eviction changes it.
    pub(super) version: i32,
    /// Number of the change that created the nodes.
    pub(super) czxid: i64,
    /// What this client wrote.
    pub(super) value: Value,
    /// The tokens, once the claim holds its lock.
    pub(super) granted: Option<TokenRange>,
    /// What the claim waits for, by its last poll.
    pub(super) target: Target,
    /// When the last request was sent whose reply proves that the claim was not evicted.
    pub(super) proved_at: Instant,
    /// The lease that the claim asked for when it was placed.
    pub(super) asked: Duration,
    /// Start and length of the claim's lease, as they were answered last.
    pub(super) lease: (Instant, Duration),
    /// End of the claim's own lease. Its session lasts longer, with other claims.
    pub(super) ends: Instant,
}

impl Placed {
    /// The conditions that the claim was not evicted, and that its nodes were not deleted. Two nodes are enough: only by hand are
    /// they deleted one by one.
    pub(super) fn unchanged(&self) -> Vec<Op> {
        let nodes = self.nodes.iter().take(2).enumerate();
        nodes
            .map(|(at, node)| Op::Check(node.clone(), self.version_of(at)))
            .collect()
    }

    /// Whether the nodes are permits: they lie outside the folder in which the claims of a semaphore queue.
    pub(super) fn has_permits(&self) -> bool {
        matches!(self.value.mode, Mode::Permits { .. }) && parent(&self.nodes[0]) != self.spot.folder
    }

    /// Deletes the nodes, if the claim was not evicted.
    pub(super) fn deletes(&self) -> Vec<Op> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .map(|(at, node)| Op::Delete(node.clone(), self.version_of(at)))
            .collect()
    }

    fn version_of(&self, at: usize) -> Option<i32> {
        (at == 0).then_some(self.version)
    }
}

/// What a waiting claim waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Target {
    /// A change among the nodes of the lock.
    #[default]
    Lock,
    /// A change among the children of this node, which may be missing.
    Folder(String),
    /// The deletion of a contender's node.
    Node(String),
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
        self.czxid
    }

    fn granted(&self) -> Option<TokenRange> {
        self.granted
    }

    fn ends(&self) -> Instant {
        self.ends
    }
}
