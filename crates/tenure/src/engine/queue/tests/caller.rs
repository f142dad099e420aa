//! A caller in the model of a queue, with the state of its future.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use crate::engine::hold::Hold;
use crate::engine::queue::callers::CallerKind;
use crate::engine::queue::waiter::WaiterId;
use crate::engine::request::LockRequest;

pub(super) struct Caller {
    pub(super) id: WaiterId,
    pub(super) request: LockRequest,
    pub(super) kind: CallerKind,
    /// Number of tokens that the caller's own claim reserves.
    pub(super) reserve: u32,
    pub(super) state: CallerState,
    pub(super) flag: Arc<WakeFlag>,
    /// Whether the caller was woken after its last poll.
    pub(super) is_woken: bool,
}

impl Caller {
    pub(super) fn waker(&self) -> Waker {
        self.flag.clone().into()
    }
}

#[derive(Debug)]
pub(super) enum CallerState {
    /// The caller polls its own call.
    Calling,
    /// A task polls the caller's call.
    Adopted,
    /// The caller was dropped during its call.
    Left,
    Waiting,
    Holding(Arc<Hold>),
    Gone,
}

/// A waker that records whether it was woken.
#[derive(Default)]
pub(super) struct WakeFlag(pub(super) AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
