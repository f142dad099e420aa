//! Listings: reads the contenders of locks for people, and what weakens the store.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use tenure_backend::{
    BackendError, Cursor, Finding, HolderStatus, LockKey, LockStatus, Page, Query, WaiterStatus,
};

use crate::profile::tokens;
use crate::store::{Contender, Contenders};

/// A store that lists its locks.
pub trait Inspect: Contenders {
    /// Whether records show the tokens of their claims.
    fn shows_tokens(&self) -> bool {
        true
    }

    /// Finds the locks with contenders whose names begin with `prefix`. It may find others, too.
    fn locks(
        self: &Arc<Self>,
        prefix: &str,
    ) -> impl Future<Output = Result<Vec<LockKey>, BackendError>> + Send;

    /// Reads the contenders of each of these locks, the oldest first.
    fn contenders_of(
        self: &Arc<Self>,
        locks: &[LockKey],
    ) -> impl Future<Output = Result<Vec<Vec<Self::Contender>>, BackendError>> + Send;
}

/// A store that is examined.
pub trait Examine: Contenders {
    /// Finds out what weakens the store.
    fn examine(self: Arc<Self>) -> impl Future<Output = Result<Vec<Finding>, BackendError>> + Send;
}

/// Lists a lock, or a page of those whose names begin with a prefix.
pub(crate) async fn inspect<S: Inspect>(
    store: Arc<S>,
    query: Query,
) -> Result<Page<LockStatus>, BackendError> {
    let (locks, next) = match query {
        Query::Key(key) => (vec![key], None),
        Query::Prefix { prefix, after, limit } => {
            let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
            let mut locks: BTreeSet<LockKey> = store.locks(&prefix).await?.into_iter().collect();
            locks.retain(|lock| {
                let is_after = after.as_ref().is_none_or(|after| lock.as_str() > after.as_str());
                is_after && lock.as_str().starts_with(&*prefix)
            });
            let has_more = locks.len() > limit;
            let locks: Vec<LockKey> = locks.into_iter().take(limit).collect();
            let last = locks.last().filter(|_| has_more);
            let next = last.map(|last| Cursor::new(last.as_str()));
            (locks, next)
        }
    };
    let contenders = store.contenders_of(&locks).await?;
    let statuses = locks.into_iter().zip(contenders);
    let statuses = statuses.filter_map(|(lock, all)| status(lock, &all, store.shows_tokens()));
    Ok(Page::new(statuses.collect(), next))
}

/// The status of a lock; `None` if it has no contender that counts: one that is being evicted does not.
fn status<C: Contender>(lock: LockKey, all: &[C], shows_tokens: bool) -> Option<LockStatus> {
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    let kind = all.iter().find(|one| !one.is_evicted())?.mode().kind();
    for (at, one) in all.iter().enumerate().filter(|(_, one)| !one.is_evicted()) {
        if C::waits(all, at) {
            waiters.push(WaiterStatus::new(one.id(), one.label(), one.mode()));
            continue;
        }
        let value = one.value().filter(|_| shows_tokens);
        let tokens = value.and_then(|value| tokens(value.granted_at.unwrap_or(one.created()), value.grants));
        let token = tokens.map(|tokens| tokens.first());
        holders.push(HolderStatus::new(one.id(), one.label(), one.mode(), token, None));
    }
    Some(LockStatus::new(lock, kind, holders, Some(waiters)))
}
