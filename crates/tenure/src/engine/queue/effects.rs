//! The effects of an event, which are carried out after the queue is unlocked.

use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tenure_backend::Instant;
use tokio::sync::Notify;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::engine::hold::Hold;
use crate::engine::request::LockRequest;

/// The effects of an event, which are carried out after the queue is unlocked.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wakes: SmallVec<[Waker; 1]>,
    pub(crate) poller: Option<PollerEffect>,
    /// Pollers of fair waiters that left.
    pub(crate) notify: Vec<Arc<Notify>>,
    /// Releases that no caller waits for.
    pub(crate) releases: Vec<ReleaseOrder>,
    /// Whether a claim was handed over in memory.
    pub(crate) handed_over: bool,
    /// The time at which a timer must report [`LingerOver`](super::linger::LingerOver).
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

/// A hold that has left the queue and must be released.
#[derive(Debug)]
pub(crate) struct ReleaseOrder {
    pub(crate) hold: Arc<Hold>,
    pub(crate) successor: Option<SuccessorRequest>,
    /// A closing client waits until this token is dropped.
    pub(crate) token: TaskTrackerToken,
}

/// The claim that a release names as its successor.
#[derive(Clone, Debug)]
pub(crate) struct SuccessorRequest {
    pub(crate) request: LockRequest,
    /// Number of grants that the claim reserves.
    pub(crate) reserve: u32,
}

/// A grant of the store, accepted by the client.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) hold: Arc<Hold>,
    pub(crate) request: LockRequest,
}
