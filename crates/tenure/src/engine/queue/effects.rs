//! The effects of an event on a queue: wakes, notifications and releases, carried out after the queue is unlocked.

use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tenure_backend::{Claim, Instant};
use tokio::sync::Notify;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;

/// What to do for an event after the queue is unlocked.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wakes: SmallVec<[Waker; 1]>,
    pub(crate) poller: Option<PollerEffect>,
    /// Signals of the pollers whose fair waiter has left: such a poller withdraws its waiter's claim.
    pub(crate) notify: Vec<Arc<Notify>>,
    /// A claim to withdraw, for which the poller does not ask: it may stand in the store's queue.
    pub(crate) withdraw: Option<Arc<Claim>>,
    /// Releases to send in the background.
    pub(crate) releases: Vec<ReleaseOrder>,
    /// Number of local hand-overs, for a metric.
    pub(crate) handed_over: u64,
    /// The time for which to start a timer that applies [`LingerOver`](super::linger::LingerOver). `None`: no timer.
    pub(crate) linger_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollerEffect {
    Start,
    Notify,
}

impl Effects {
    pub(super) fn notify_poller(&mut self) {
        self.poller.get_or_insert(PollerEffect::Notify);
    }
}

/// A hold that its queue has removed, and whose claim must be released.
#[derive(Debug)]
pub(crate) struct ReleaseOrder {
    pub(crate) hold: Arc<Hold>,
    pub(crate) successor: Option<SuccessorRequest>,
    /// A closing client waits until this token is dropped.
    pub(crate) token: TaskTrackerToken,
}

/// A claim that the poller acquires, or that a release names as its successor.
#[derive(Clone, Debug)]
pub(crate) struct SuccessorRequest {
    pub(crate) request: LockRequest,
    /// Number of tokens that the claim reserves.
    pub(crate) reserve: u32,
}

/// A claim of a local waiter that may stand in the store's queue.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) claim: Arc<Claim>,
    pub(crate) request: LockRequest,
}

/// A grant by the store, accepted before its local deadline.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) hold: Arc<Hold>,
    pub(crate) request: LockRequest,
}
