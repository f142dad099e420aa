//! A peer on Redis: `rlock`, as its README uses it, with the options that it has by default: a lease of 10 s that is
//! renewed, and a try every 100 ms.
//! It promises less: no token, no order and no wake-up among those who wait.

use rlock::async_lock::{RLock, RLockGuard};

use super::named::Named;
use super::{Lock, Locker};
use crate::Fallible;

pub(crate) struct Rlock(RLock);

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
