//! A request on its way from its caller to the connection, and the reply on its way back.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tenure_backend::{BackendError, Effect};
use tokio::sync::oneshot;

use super::jute::{Read, Reader};
use super::watch::Registration;
use crate::error::{Code, malformed};

/// What ZooKeeper has answered.
pub(super) struct Reply {
    /// Number of the change that the request made, or of the newest change that the server knows.
    pub(super) zxid: i64,
    pub(super) code: Code,
    pub(super) body: Vec<u8>,
    /// What an unreadable reply leaves open.
    pub(super) effect: Effect,
}

impl Reply {
    pub(super) fn read<T>(&self, decode: impl Fn(&mut Reader<'_>) -> Read<T>) -> Result<T, BackendError> {
        decode(&mut Reader(&self.body)).map_err(|_| malformed(self.effect))
    }
}

/// A request of a caller.
pub(super) struct Order {
    pub(super) opcode: i32,
    pub(super) body: Vec<u8>,
    /// The effect of the request if it was sent and has no reply.
    pub(super) effect: Effect,
    pub(super) watch: Option<Registration>,
    /// Set when the request is sent, and when its caller withdraws it. Only the first of both counts.
    pub(super) is_settled: Arc<AtomicBool>,
    pub(super) reply: oneshot::Sender<Result<Reply, BackendError>>,
}
