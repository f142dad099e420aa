//! Peers on Redis, `rlock` and `rslock`, as their READMEs use them.
//!
//! rlock renews a lease of 10 s and tries every 100 ms. rslock does not renew. Both promise less: no token, no order and no
//! wake-up among those who wait.

use std::time::Duration;

use rlock::async_lock::{RLock, RLockGuard};
use rslock::{LockGuard, LockManager};

use super::{Lock, Locker};
use crate::Fallible;

/// The lease of rslock: as long as Tenure's.
const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Rlock(RLock);

pub(crate) struct Rslock(LockManager);

/// A key of a peer whose manager is cloned, and told the name with every call.
pub(crate) struct Named<M> {
    manager: M,
    name: String,
}

impl<M: Clone> Named<M> {
    /// Clones of a manager share its connection.
    fn new(manager: &M, name: &str) -> Self {
        Named {
            manager: manager.clone(),
            name: name.to_owned(),
        }
    }
}

impl Rlock {
    pub(crate) async fn connect(url: &str) -> Fallible<Self> {
        Ok(Rlock(RLock::new(url).await?))
    }
}

impl Locker for Rlock {
    type Lock = Named<RLock>;

    fn lock_of(&self, key: &str) -> Self::Lock {
        Named::new(&self.0, key)
    }

    async fn close(self) -> Fallible<()> {
        self.0.shutdown().await;
        Ok(())
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

impl Rslock {
    pub(crate) fn new(url: &str) -> Self {
        Rslock(LockManager::new(vec![url]))
    }
}

impl Locker for Rslock {
    type Lock = Named<LockManager>;

    fn lock_of(&self, key: &str) -> Self::Lock {
        Named::new(&self.0, key)
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
