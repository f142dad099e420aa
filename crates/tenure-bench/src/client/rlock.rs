//! A peer on Redis: `rlock`, as its README uses it, with the options that it has by default: a lease of 10 s that is
//! renewed, and a try every 100 ms.
//! It promises less: no token, no order and no wake-up among those who wait.

use rlock::async_lock::{RLock, RLockGuard};

use super::{Lock, Locker};
use crate::Fallible;

pub(crate) struct Rlock(RLock);

pub(crate) struct Key {
    manager: RLock,
    name: String,
}

impl Rlock {
    pub(crate) async fn connect(url: &str) -> Fallible<Self> {
        Ok(Rlock(RLock::new(url).await?))
    }
}

impl Locker for Rlock {
    type Lock = Key;

    fn lock_of(&self, key: &str) -> Key {
        Key {
            manager: self.0.clone(),
            name: key.to_owned(),
        }
    }

    async fn close(self) -> Fallible<()> {
        self.0.shutdown().await;
        Ok(())
    }
}

impl Lock for Key {
    type Guard = RLockGuard;

    async fn lock(&self) -> Fallible<RLockGuard> {
        Ok(self.manager.acquire_mutex(&self.name).await?)
    }

    async fn unlock(&self, mut guard: RLockGuard) -> Fallible<()> {
        Ok(guard.release().await?)
    }
}
