//! What the messages of several services share.

/// State of the cluster when the member answered.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ResponseHeader {
    /// ID of the member that answered.
    #[prost(uint64, tag = "2")]
    pub member_id: u64,
    /// Revision of the store. In the reply to a write it is the revision of that write.
    #[prost(int64, tag = "3")]
    pub revision: i64,
    /// Raft's term, as that member knew it.
    #[prost(uint64, tag = "4")]
    pub raft_term: u64,
}

/// The reply to a request that only writes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Written {
    /// State of the cluster.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
}

/// A request without fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}
