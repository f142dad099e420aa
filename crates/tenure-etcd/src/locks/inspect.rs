//! Listings: reads the contenders of locks.

use std::sync::Arc;

use tenure_backend::{BackendError, LockKey};
use tenure_contenders::Inspect;

use super::contenders::{Contender, contenders};
use super::store::Locks;
use crate::client::{Op, RANGE, RangeRequest};

/// The most locks that one transaction reads.
const MAX_READS: usize = 100;

impl Inspect for Locks {
    fn shows_tokens(&self) -> bool {
        !self.config.etcdctl_fencing
    }

    async fn locks(self: &Arc<Self>, prefix: &str) -> Result<Vec<LockKey>, BackendError> {
        let read = RangeRequest {
            keys_only: true,
            ..RangeRequest::prefix(self.names.listing(prefix))
        };
        let found = self.client.call(RANGE, read).await?.kvs.into_iter();
        Ok(found
            .filter_map(|kv| self.names.lock_of(&kv.key, kv.lease))
            .collect())
    }

    async fn contenders_of(self: &Arc<Self>, locks: &[LockKey]) -> Result<Vec<Vec<Contender>>, BackendError> {
        let mut all = Vec::new();
        for locks in locks.chunks(MAX_READS) {
            let folders: Vec<String> = locks.iter().map(|lock| self.names.folder(lock)).collect();
            let read = |folder: &String| Op::Range(RangeRequest::prefix(folder));
            let reads = folders.iter().map(read).collect();
            let reply = self.client.txn(Vec::new(), reads, Vec::new()).await?;
            let found = folders.iter().zip(reply.responses);
            all.extend(found.map(|(folder, read)| contenders(folder, read.range.unwrap_or_default().kvs)));
        }
        Ok(all)
    }
}
