//! Other lock libraries on Redis, `rlock` and `rslock`, as their READMEs use them.
//!
//! rlock renews a lease of 10 s; its waiters try every 100 ms. rslock does not renew. Both promise less than Tenure:
//! no token, no order and no wake-up among waiters.

use std::time::Duration;

use rlock::async_lock::{RLock, RLockGuard};
use rslock::{LockGuard, LockManager};

use super::Lock;
use crate::Fallible;

/// The lease of rslock's locks, as long as Tenure's default.
const LEASE: Duration = Duration::from_secs(30);

/// A key of a library whose lock manager takes the key's name with every call.
pub(crate) struct Named<M> {
    manager: M,
    name: String,
}

/// Returns a function that makes keys with clones of this manager, which share one connection.
pub(crate) fn keys<M: Clone>(manager: &M) -> impl Fn(&str) -> Named<M> {
    |name| Named {
        manager: manager.clone(),
        name: name.to_owned(),
    }
}

impl Lock for Named<RLock> {
    type Guard = RLockGuard;

    async fn lock(&self) -> Fallible<RLockGuard> {
        Ok(self.manager.acquire_mutex(&self.name).await?)
    }

    async fn unlock(&self, mut guard: RLockGuard) -> Fallible<()> {
        Ok(guard.release().await?)
    }
}

impl Lock for Named<LockManager> {
    type Guard = LockGuard;

    async fn lock(&self) -> Fallible<LockGuard> {
        Ok(self.manager.acquire(&*self.name, LEASE).await?)
    }

    async fn unlock(&self, guard: LockGuard) -> Fallible<()> {
        guard.release().await;
        Ok(())
    }
}
