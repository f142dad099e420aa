//! What must be done after an event, when the queue is unlocked: wake callers, notify pollers, send releases.

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
    /// Signals to pollers whose fair waiter has left: each then withdraws the waiter's claim.
    pub(crate) notify: Vec<Arc<Notify>>,
    /// Releases to send in the background: no caller waits for them.
    pub(crate) releases: Vec<ReleaseOrder>,
    /// Whether a claim went to another local caller in memory; counted by a metric.
    pub(crate) handed_over: bool,
    /// `Some`: start a timer that applies [`LingerOver`](super::linger::LingerOver) at this time.
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

/// A claim to ask the store for: by the poller, or as the successor that a release names.
#[derive(Clone, Debug)]
pub(crate) struct SuccessorRequest {
    pub(crate) request: LockRequest,
    /// Number of tokens that the claim reserves.
    pub(crate) reserve: u32,
}

/// A grant by the store that the client accepted before its local deadline.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) hold: Arc<Hold>,
    pub(crate) request: LockRequest,
}
