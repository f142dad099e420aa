//! Messages of the service of leases.

use super::common::ResponseHeader;

/// A request for a lease.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantRequest {
    /// The length in seconds. The server may grant a longer one.
    #[prost(int64, tag = "1")]
    pub ttl: i64,
    /// The lease's ID; 0 lets the server choose one.
    #[prost(int64, tag = "2")]
    pub id: i64,
}

/// The reply to a [`LeaseGrantRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseGrantResponse {
    /// State of the cluster.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The lease's ID.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// The granted length in seconds.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// A request to prolong a lease to its full length, or to end it and delete its keys.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseId {
    /// The lease's ID.
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// The reply to a request to prolong a lease.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseKeepAliveResponse {
    /// State of the cluster, as the member that was asked knew it before the lease was prolonged.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The lease's ID.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// The lease's length in seconds; 0 or less if there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
}

/// A request for the rest of a lease.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LeaseTimeToLiveRequest {
    /// The lease's ID.
    #[prost(int64, tag = "1")]
    pub id: i64,
    /// Return the lease's keys, too.
    #[prost(bool, tag = "2")]
    pub keys: bool,
}

/// The reply to a [`LeaseTimeToLiveRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LeaseTimeToLiveResponse {
    /// State of the cluster.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The lease's ID.
    #[prost(int64, tag = "2")]
    pub id: i64,
    /// The time left in seconds; -1 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub ttl: i64,
    /// The lease's length in seconds.
    #[prost(int64, tag = "4")]
    pub granted_ttl: i64,
    /// The lease's keys, if they were asked for.
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub keys: Vec<Vec<u8>>,
}
