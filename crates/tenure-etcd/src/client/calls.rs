//! The client: its calls, and how they move from member to member.
//!
//! # Cancel safety
//! Dropping the future of a call cancels the request. The member may have carried it out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use tenure_backend::{BackendError, Effect};
use tenure_contenders::SharedAttempts;
use tenure_endpoint::{Dialer, ServerKind};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

use super::member::Member;
use super::messages::*;
use super::methods::{Message, Method, TXN};
use super::stream::Replies;
use crate::config::Config;
use crate::error::{Next, invalid, unanswered};

const ETCD: ServerKind = ServerKind {
    name: "etcd",
    scheme: "etcd",
    tls_hint: "whether it has a certificate (`--cert-file`)",
    // Servers of gRPC refuse a client that does not name the protocol.
    tls_protocol: Some("h2"),
    greets: true,
};

/// A client of an etcd cluster. It connects at its first call. When it and its watches are dropped, their stream ends.
///
/// A call uses timers of the runtime that polls it first, and a connection ends with the runtime on which it was opened. The
/// next call then opens another.
///
/// # Errors
/// Every call fails with `Unavailable` if no member answers in time, with `Denied` if etcd refuses the user, the password or a
/// permission, with `Store` if etcd refuses the request for another reason, a host is unknown or TLS fails, and with `Closed`
/// after [`close`](Client::close). The effect is `None` if etcd has certainly not carried out the request.
pub struct Client {
    pub(super) config: Config,
    pub(super) dialer: Dialer,
    /// Number of hosts that were tried. The next one is at this index of the list, counted round.
    pub(super) tried: AtomicUsize,
    pub(super) attempts: SharedAttempts,
    pub(super) closed: AtomicBool,
    /// The member that requests go to. Locked during an attempt to connect.
    pub(super) current: Mutex<Option<Arc<Member>>>,
    pub(super) last_watch: AtomicI64,
    /// Orders for the task that serves the watches. Each watch sends two at most.
    pub(super) orders: parking_lot::Mutex<Option<mpsc::UnboundedSender<Order>>>,
}

/// Where the updates of a watch go.
pub(super) type Updates = mpsc::Sender<Result<WatchResponse, BackendError>>;

/// What a client or a watch asks of the task that serves the watches.
pub(super) enum Order {
    Create(WatchCreateRequest, Updates),
    Cancel(i64),
}

impl Client {
    /// Reads the certificates if TLS is configured. Does not connect.
    ///
    /// # Errors
    /// `Invalid` if the certificates cannot be used, `Unsupported` if TLS was left out of this build.
    pub fn new(config: Config) -> Result<Arc<Self>, BackendError> {
        Ok(Arc::new(Client {
            dialer: Dialer::new(&ETCD, config.tls.as_ref())?,
            config,
            tried: AtomicUsize::new(0),
            attempts: SharedAttempts::default(),
            closed: AtomicBool::new(false),
            current: Mutex::default(),
            last_watch: AtomicI64::new(0),
            orders: parking_lot::Mutex::default(),
        }))
    }

    /// Sends a request to the current member, and to the next one if it certainly had no effect there.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn call<Q: Message, A: Message>(
        &self,
        method: Method<Q, A>,
        request: Q,
    ) -> Result<A, BackendError> {
        let limit = self.config.command_timeout;
        // One more than hosts: a connection may have ended before the request.
        let mut left = self.config.hosts.len() + 1;
        loop {
            let member = self.current().await?;
            let failed = match timeout(limit, member.call(&method, request.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failed)) => failed,
                Err(_) => {
                    member.leave();
                    return Err(unanswered(limit));
                }
            };
            left -= 1;
            if failed.next != Next::Leave || failed.error.effect() == Effect::Unknown || left == 0 {
                return Err(failed.error);
            }
        }
    }

    /// Carries out `then` if all of `compare` are true, `otherwise` if not.
    ///
    /// # Errors
    /// As [`Client`] says, and `Invalid` without an operation: a member would answer comparisons alone from its own memory, and
    /// might have lost the leadership.
    pub async fn txn(
        &self,
        compare: Vec<Compare>,
        then: Vec<Op>,
        otherwise: Vec<Op>,
    ) -> Result<TxnResponse, BackendError> {
        if then.is_empty() && otherwise.is_empty() {
            return Err(invalid(
                "a transaction of comparisons alone proves nothing: add a range",
            ));
        }
        let carried = |ops: Vec<Op>| ops.into_iter().map(|op| RequestOp { op: Some(op) }).collect();
        let (success, failure) = (carried(then), carried(otherwise));
        let request = TxnRequest {
            compare,
            success,
            failure,
        };
        self.call(TXN, request).await
    }

    /// Opens a stream. Its requests wait until the next reply is waited for.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn stream<Q: Message, A: Message>(
        &self,
        method: Method<Q, A>,
    ) -> Result<(mpsc::UnboundedSender<Q>, Replies<A>), BackendError> {
        let (sender, requests) = mpsc::unbounded_channel();
        let member = self.current().await?;
        Ok((sender, Replies::of(&method, member, requests).await))
    }

    /// Refuses further calls, streams and watches. Those that are open go on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.orders.lock().take();
    }
}
