//! The stream that keeps leases alive.

use std::sync::Arc;

use tenure_backend::BackendError;

use super::member::Member;
use super::messages::{LeaseId, LeaseKeepAliveResponse};
use super::stream::Bidirectional;

/// A stream that keeps leases alive, many at a time. Dropping it ends the stream; the leases last on.
///
/// The member answers in the order of the requests, so one request that hangs delays all that follow it. A follower may
/// hang for seconds when the leader is paused: [`leave`](KeepAlives::leave) it then, and open a stream at another
/// member.
pub struct KeepAlives(Bidirectional<LeaseId, LeaseKeepAliveResponse>);

impl KeepAlives {
    pub(super) async fn open(member: Arc<Member>) -> Self {
        KeepAlives(Bidirectional::open(member, "/etcdserverpb.Lease/LeaseKeepAlive").await)
    }

    /// Queues a request to prolong a lease to its full length. It is sent while [`next`](KeepAlives::next) waits.
    ///
    /// # Errors
    /// `Unavailable` if the stream has ended, or if the member takes no requests: open another.
    pub fn send(&self, lease: i64) -> Result<(), BackendError> {
        self.0.send(LeaseId { id: lease })
    }

    /// Waits for the next reply. A `ttl` of 0 or less means that the lease does not exist.
    ///
    /// # Cancel safety
    /// Dropping the future loses no reply.
    ///
    /// # Errors
    /// `Unavailable` if the stream has ended: open another. Requests without a reply may have been carried out.
    pub async fn next(&mut self) -> Result<LeaseKeepAliveResponse, BackendError> {
        self.0.next().await
    }

    /// Leaves the member of this stream: later calls and streams of the client go to another one.
    pub fn leave(self) {
        self.0.member.leave();
    }
}
