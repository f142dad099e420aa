//! The calls and streams of etcd's API: their paths, and what is sent and received.

use std::marker::PhantomData;

use http::uri::PathAndQuery;

use super::messages::*;

/// What is sent and received.
pub trait Message: prost::Message + Clone + Default + 'static {}
impl<T: prost::Message + Clone + Default + 'static> Message for T {}

/// A call or a stream: its path, and the types of its requests and replies.
pub struct Method<Q, A>(&'static str, PhantomData<fn(Q) -> A>);

impl<Q, A> Method<Q, A> {
    const fn at(path: &'static str) -> Self {
        Method(path, PhantomData)
    }

    pub(super) fn path(&self) -> PathAndQuery {
        PathAndQuery::from_static(self.0)
    }
}

/// Logs in.
pub(super) const AUTHENTICATE: Method<AuthenticateRequest, AuthenticateResponse> =
    Method::at("/etcdserverpb.Auth/Authenticate");

/// Reads keys.
pub const RANGE: Method<RangeRequest, RangeResponse> = Method::at("/etcdserverpb.KV/Range");

/// Writes a key. [`is_missing_lease`](super::is_missing_lease) recognizes the error for a lease that does not exist.
pub const PUT: Method<PutRequest, Written> = Method::at("/etcdserverpb.KV/Put");

/// Deletes a key.
pub const DELETE_RANGE: Method<DeleteRangeRequest, Written> = Method::at("/etcdserverpb.KV/DeleteRange");

/// Carries out a transaction. [`Client::txn`](super::Client::txn) refuses those that prove nothing.
pub(super) const TXN: Method<TxnRequest, TxnResponse> = Method::at("/etcdserverpb.KV/Txn");

/// Creates a lease.
pub const GRANT: Method<LeaseGrantRequest, LeaseReply> = Method::at("/etcdserverpb.Lease/LeaseGrant");

/// Ends a lease and deletes its keys.
pub const REVOKE: Method<LeaseId, Written> = Method::at("/etcdserverpb.Lease/LeaseRevoke");

/// A stream that prolongs leases to their full length. The leases last on when it ends.
///
/// The member answers in the order of the requests, so one request that hangs delays all that follow it. A follower may hang for
/// seconds when the leader is paused: [leave](super::Replies::leave) it then, and open a stream at another member.
pub const KEEP_ALIVE: Method<LeaseId, LeaseReply> = Method::at("/etcdserverpb.Lease/LeaseKeepAlive");

/// The stream of all watches of a client.
pub(super) const WATCH: Method<WatchRequest, WatchResponse> = Method::at("/etcdserverpb.Watch/Watch");

/// Returns the state of the member that requests go to.
pub const STATUS: Method<Empty, StatusResponse> = Method::at("/etcdserverpb.Maintenance/Status");

/// Returns the active alarms.
pub const ALARMS: Method<Empty, AlarmResponse> = Method::at("/etcdserverpb.Maintenance/Alarm");

/// Returns the members of the cluster.
pub const MEMBERS: Method<Empty, MemberListResponse> = Method::at("/etcdserverpb.Cluster/MemberList");
