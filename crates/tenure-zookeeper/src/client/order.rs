//! A request on its way from its caller to the connection, and the reply on its way back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tenure_backend::{BackendError, Effect};
use tokio::sync::oneshot;

use super::watch::Registration;
use crate::error::Code;

/// What ZooKeeper has answered.
pub(super) struct Reply {
    /// Number of the change that the request made, or of the newest change that the server knows.
    pub(super) zxid: i64,
    pub(super) code: Code,
    pub(super) body: Vec<u8>,
    /// What an unreadable reply leaves open.
    pub(super) effect: Effect,
}

/// A request of a caller.
pub(super) struct Order {
    pub(super) opcode: i32,
    pub(super) body: Vec<u8>,
    /// Whether the request can change something in ZooKeeper.
    pub(super) changes: bool,
    pub(super) watch: Option<Registration>,
    pub(super) progress: Arc<Progress>,
    pub(super) reply: oneshot::Sender<Result<Reply, BackendError>>,
}

/// The effect of a request that was sent and has no reply.
pub(super) fn effect(changes: bool) -> Effect {
    match changes {
        true => Effect::Unknown,
        false => Effect::None,
    }
}

const WAITING: u8 = 0;
const SENT: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Whether a request was sent, or its caller has withdrawn it. Only the first of both counts.
#[derive(Default)]
pub(super) struct Progress(AtomicU8);

impl Progress {
    fn leave_waiting(&self, to: u8) -> bool {
        let (waiting, ordering) = (WAITING, Ordering::AcqRel);
        let changed = self.0.compare_exchange(waiting, to, ordering, Ordering::Acquire);
        changed.is_ok()
    }

    /// Marks the request as sent. Returns false if it was withdrawn.
    pub(super) fn send(&self) -> bool {
        self.leave_waiting(SENT)
    }

    /// Withdraws the request. Returns false if it was sent.
    pub(super) fn withdraw(&self) -> bool {
        self.leave_waiting(WITHDRAWN)
    }
}
