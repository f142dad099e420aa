//! A peer on Redis: `rslock`, as its README uses it, with the retries that it has by default.
//! It promises less: no renewal unless the work is given to it, no token, no order and no wake-up among those who wait.

use std::time::Duration;

use rslock::{LockGuard, LockManager};

use super::named::Named;
use super::{Lock, Locker};
use crate::Fallible;

/// As long as Tenure's.
const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Rslock(LockManager);

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

    async fn close(self) -> Fallible<()> {
        Ok(())
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
