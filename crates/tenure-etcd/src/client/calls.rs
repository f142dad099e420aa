//! The client: its calls, and how they move from member to member.
//!
//! # Cancel safety
//! Dropping the future of a call cancels the request. The member may have carried it out.

use std::sync::Arc;

use tenure_backend::{BackendError, Effect};
use tokio::time::timeout;

use super::keep_alive::KeepAlives;
use super::members::Members;
use super::messages::*;
use super::watch::Watches;
use crate::config::Config;
use crate::error::{Failure, Next, invalid, unanswered};

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
    members: Arc<Members>,
    watches: Watches,
}

impl Client {
    /// Reads the certificates if TLS is configured. Does not connect.
    ///
    /// # Errors
    /// `Invalid` if the certificates cannot be used, `Unsupported` if TLS was left out of this build.
    pub fn new(config: Config) -> Result<Self, BackendError> {
        let members = Arc::new(Members::new(config)?);
        Ok(Client {
            watches: Watches::new(members.clone()),
            members,
        })
    }

    /// Reads keys.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, BackendError> {
        self.members.call("/etcdserverpb.KV/Range", request).await
    }

    /// Writes a key.
    ///
    /// # Errors
    /// As [`Client`] says. [`is_missing_lease`](super::is_missing_lease) recognizes a lease that does not exist.
    pub async fn put(&self, request: PutRequest) -> Result<Written, BackendError> {
        self.members.call("/etcdserverpb.KV/Put", request).await
    }

    /// Deletes keys.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn delete_range(
        &self,
        request: DeleteRangeRequest,
    ) -> Result<DeleteRangeResponse, BackendError> {
        self.members.call("/etcdserverpb.KV/DeleteRange", request).await
    }

    /// Carries out a transaction.
    ///
    /// # Errors
    /// As [`put`](Client::put), and `Invalid` without an operation: a member would answer comparisons alone from its own
    /// memory, and might have lost the leadership.
    pub async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, BackendError> {
        if request.success.is_empty() && request.failure.is_empty() {
            return Err(invalid(
                "a transaction of comparisons alone proves nothing: add a range",
            ));
        }
        self.members.call("/etcdserverpb.KV/Txn", request).await
    }

    /// Creates a lease.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn grant(&self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, BackendError> {
        self.members.call("/etcdserverpb.Lease/LeaseGrant", request).await
    }

    /// Ends a lease and deletes its keys.
    ///
    /// # Errors
    /// As [`put`](Client::put).
    pub async fn revoke(&self, lease: LeaseId) -> Result<Written, BackendError> {
        self.members.call("/etcdserverpb.Lease/LeaseRevoke", lease).await
    }

    /// Returns the state of the member that requests go to.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn status(&self) -> Result<StatusResponse, BackendError> {
        self.members
            .call("/etcdserverpb.Maintenance/Status", Empty {})
            .await
    }

    /// Returns the active alarms.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn alarms(&self) -> Result<AlarmResponse, BackendError> {
        self.members
            .call("/etcdserverpb.Maintenance/Alarm", Empty {})
            .await
    }

    /// Returns the members of the cluster.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn members(&self) -> Result<MemberListResponse, BackendError> {
        self.members
            .call("/etcdserverpb.Cluster/MemberList", Empty {})
            .await
    }

    /// Opens a stream that keeps leases alive.
    ///
    /// # Errors
    /// As [`Client`] says.
    pub async fn keep_alives(&self) -> Result<KeepAlives, BackendError> {
        Ok(KeepAlives::open(self.members.current().await?).await)
    }

    /// The watches of this client.
    pub fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Refuses further calls, streams and watches. Those that are open go on.
    pub fn close(&self) {
        self.members.close();
        self.watches.close();
    }
}

impl Members {
    /// Sends a request to the current member, and to the next one if it certainly had no effect there.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, BackendError>
    where
        Q: prost::Message + Clone + 'static,
        A: prost::Message + Default + 'static,
    {
        let limit = self.config.command_timeout;
        // One more than hosts: a connection may have ended before the request.
        let mut left = self.config.hosts.len() + 1;
        loop {
            let member = self.current().await?;
            let answer = timeout(limit, member.call(path, request.clone())).await;
            let failed: Failure = match answer {
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
}
