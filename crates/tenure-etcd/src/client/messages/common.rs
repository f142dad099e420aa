//! What the messages of several services share.

messages! {
    /// State of the cluster when the member answered.
    #[derive(Copy)]
    ResponseHeader {
        /// ID of the member that answered.
        member_id: u64 [uint64, tag = "2"],
        /// Revision of the store. In the reply to a write it is the revision of that write.
        revision: i64 [int64, tag = "3"],
        /// Raft's term, as that member knew it.
        raft_term: u64 [uint64, tag = "4"],
    }

    /// The reply to a request that only writes.
    #[derive(Copy)]
    Written {
        /// State of the cluster.
        header: ResponseHeader [message, required, tag = "1"],
    }

    /// A request without fields.
    #[derive(Copy)]
    Empty {}
}
