//! Listings: reads the contenders of locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenure_backend::{BackendError, Cursor, HolderStatus, LockKey, LockStatus, Page, Query, WaiterStatus};
use tenure_contenders::Contender as _;

use super::contenders::{Contender, contenders};
use super::profile::tokens;
use super::store::Locks;
use crate::client::{Op, RANGE, RangeRequest};

/// The most locks that one transaction reads.
const MAX_READS: usize = 100;

impl Locks {
    pub(super) async fn inspect(self: Arc<Self>, query: Query) -> Result<Page<LockStatus>, BackendError> {
        match query {
            Query::Key(key) => Ok(Page::new(self.statuses(&[key]).await?, None)),
            Query::Prefix { prefix, after, limit } => {
                let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
                let read = RangeRequest {
                    keys_only: true,
                    ..RangeRequest::prefix(self.names.listing(&prefix))
                };
                let found = self.client.call(RANGE, read).await?.kvs.into_iter();
                let locks = found.filter_map(|kv| self.names.lock_of(&kv.key, kv.lease));
                let is_asked = |lock: &LockKey| {
                    let is_after = after.as_ref().is_none_or(|after| lock.as_str() > after.as_str());
                    lock.as_str().starts_with(&*prefix) && is_after
                };
                let sorted: BTreeSet<LockKey> = locks.filter(is_asked).collect();
                let mut locks: Vec<LockKey> = sorted.into_iter().collect();
                let has_more = locks.len() > limit;
                locks.truncate(limit);
                let next = locks
                    .last()
                    .filter(|_| has_more)
                    .map(|last| Cursor::new(last.as_str()));
                Ok(Page::new(self.statuses(&locks).await?, next))
            }
        }
    }

    /// Reads the locks that have contenders.
    async fn statuses(&self, locks: &[LockKey]) -> Result<Vec<LockStatus>, BackendError> {
        let mut statuses = Vec::new();
        for locks in locks.chunks(MAX_READS) {
            let folders: Vec<String> = locks.iter().map(|lock| self.names.folder(lock)).collect();
            let read = |folder: &String| Op::Range(RangeRequest::prefix(&**folder));
            let reads = folders.iter().map(read).collect();
            let reply = self.client.txn(Vec::new(), reads, Vec::new()).await?;
            for ((lock, folder), keys) in locks.iter().zip(&folders).zip(reply.responses) {
                let keys = keys.range.unwrap_or_default().kvs;
                let has_tokens = !self.config.etcdctl_fencing;
                statuses.extend(status(lock, contenders(folder, keys), has_tokens));
            }
        }
        Ok(statuses)
    }
}

/// The status of a lock; `None` if it has no contender that counts: one that is being evicted does not. `has_tokens`: the keys
/// show the tokens.
fn status(lock: &LockKey, all: Vec<Contender>, has_tokens: bool) -> Option<LockStatus> {
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    let kind = all.iter().find(|one| !one.is_evicted())?.mode().kind();
    for (at, one) in all.iter().enumerate().filter(|(_, one)| !one.is_evicted()) {
        let label = one.label();
        if !Contender::waits(&all, at) {
            let grants = one
                .value
                .as_ref()
                .filter(|_| has_tokens)
                .map(|value| value.grants);
            let token = grants.and_then(|grants| Some(tokens(one.created, grants)?.first()));
            holders.push(HolderStatus::new(one.id(), label, one.mode(), token, None));
        } else {
            waiters.push(WaiterStatus::new(one.id(), label, one.mode()));
        }
    }
    Some(LockStatus::new(lock.clone(), kind, holders, Some(waiters)))
}
