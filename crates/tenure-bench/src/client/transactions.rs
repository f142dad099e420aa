//! The baseline for etcd: one transaction to lock and one to unlock, over Tenure's own connection.
//!
//! It promises less than Tenure: no queue, no wake-up, and one lease for all keys that is not renewed. `waiting` implements the
//! wait.

use std::sync::Arc;

use tenure_etcd::client::{
    Client, Compare, DeleteRangeRequest, GRANT, LeaseGrantRequest, Op, Operand, PutRequest,
};
use tenure_etcd::{Config, StoreUrl};

use super::waiting::BareStore;
use crate::Fallible;

/// A day, longer than a benchmark: nothing renews the lease.
const LEASE_S: i64 = 24 * 60 * 60;

pub(crate) struct Transactions {
    client: Arc<Client>,
    lease: i64,
}

impl Transactions {
    pub(crate) async fn open(url: &str) -> Fallible<Self> {
        let client = Client::new(Config::from_url(&StoreUrl::parse(url)?)?)?;
        let lease = client.call(GRANT, LeaseGrantRequest { ttl: LEASE_S }).await?.id;
        Ok(Transactions { client, lease })
    }

    async fn send(&self, condition: Compare, then: Op) -> Fallible<bool> {
        let reply = self.client.txn(vec![condition], vec![then], Vec::new()).await?;
        Ok(reply.succeeded)
    }
}

impl BareStore for Transactions {
    async fn take(&self, key: &str, holder: i64) -> Fallible<bool> {
        let is_free = Compare::new(key, Operand::CreateRevision(0));
        let put = PutRequest {
            key: key.into(),
            value: holder.to_string().into(),
            lease: self.lease,
            ignore_lease: false,
        };
        self.send(is_free, Op::Put(put)).await
    }

    async fn free(&self, key: &str, holder: i64) -> Fallible<bool> {
        let is_own = Compare::new(key, Operand::Value(holder.to_string().into()));
        let delete = DeleteRangeRequest { key: key.into() };
        self.send(is_own, Op::DeleteRange(delete)).await
    }
}
