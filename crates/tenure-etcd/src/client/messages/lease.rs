//! Messages of the service of leases.

use super::ResponseHeader;

messages! {
    /// A request for a lease.
    #[derive(Copy)]
    LeaseGrantRequest {
        /// The length in seconds. The server may grant a longer one.
        ttl: i64 [int64, tag = "1"],
    }

    /// A request to prolong a lease to its full length, or to end it and delete its keys.
    #[derive(Copy)]
    LeaseId {
        /// The lease's ID.
        id: i64 [int64, tag = "1"],
    }

    /// The reply to a request for a lease, or to prolong one.
    #[derive(Copy)]
    LeaseReply {
        /// State of the cluster, as the member that was asked knew it before the lease was prolonged.
        header: ResponseHeader [message, required, tag = "1"],
        /// The lease's ID.
        id: i64 [int64, tag = "2"],
        /// The lease's length in seconds; 0 or less if there is no such lease.
        ttl: i64 [int64, tag = "3"],
    }
}
