//! The interface of a client under test. To add another lock library, add a type in `peers` and a variant of
//! `plan::Client`, then follow `Client::Rlock` through `plan.rs`, `tasks.rs` and `report.rs`.

pub(crate) mod peers;
pub(crate) mod polling;
pub(crate) mod recipe;
pub(crate) mod rows;
pub(crate) mod statements;
pub(crate) mod transactions;
pub(crate) mod waiting;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{
    Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock,
    Semaphore,
};

use crate::Fallible;

/// One key, as one worker uses it. `lock` and `unlock` are measured.
pub(crate) trait Lock: Send + Sync + 'static {
    type Guard: Send;

    fn lock(&self) -> impl Future<Output = Fallible<Self::Guard>> + Send;

    /// Returns when the library reports that the key is free.
    fn unlock(&self, guard: Self::Guard) -> impl Future<Output = Fallible<()>> + Send;
}

/// Tenure, used through its public API.
impl Lock for tenure::Mutex {
    type Guard = tenure::Guard;

    async fn lock(&self) -> Fallible<tenure::Guard> {
        Ok(tenure::Mutex::lock(self).await?)
    }

    async fn unlock(&self, guard: tenure::Guard) -> Fallible<()> {
        Ok(guard.unlock().await?)
    }
}

/// One side of a read-write lock, or one permit of a semaphore.
impl Lock for tenure::Lock {
    type Guard = tenure::Guard;

    async fn lock(&self) -> Fallible<tenure::Guard> {
        Ok(tenure::Lock::lock(self).await?)
    }

    async fn unlock(&self, guard: tenure::Guard) -> Fallible<()> {
        Ok(guard.unlock().await?)
    }
}

/// The baseline for memory: `tokio::sync::Mutex`, which costs little more than waking the next task. It promises far
/// less: no lease, no token, no names, no inspection, no eviction, and no other store.
impl Lock for Arc<Mutex<()>> {
    type Guard = OwnedMutexGuard<()>;

    async fn lock(&self) -> Fallible<Self::Guard> {
        Ok(self.clone().lock_owned().await)
    }

    async fn unlock(&self, guard: Self::Guard) -> Fallible<()> {
        drop(guard);
        Ok(())
    }
}

/// One side of tokio's read-write lock.
pub(crate) struct Side {
    pub(crate) lock: Arc<RwLock<()>>,
    pub(crate) writes: bool,
}

pub(crate) enum SideGuard {
    Read(#[expect(dead_code, reason = "holds the lock")] OwnedRwLockReadGuard<()>),
    Write(#[expect(dead_code, reason = "holds the lock")] OwnedRwLockWriteGuard<()>),
}

/// The baseline for read-write locks in memory.
impl Lock for Side {
    type Guard = SideGuard;

    async fn lock(&self) -> Fallible<SideGuard> {
        let lock = self.lock.clone();
        Ok(match self.writes {
            true => SideGuard::Write(lock.write_owned().await),
            false => SideGuard::Read(lock.read_owned().await),
        })
    }

    async fn unlock(&self, guard: SideGuard) -> Fallible<()> {
        drop(guard);
        Ok(())
    }
}

/// The baseline for semaphores in memory.
impl Lock for Arc<Semaphore> {
    type Guard = OwnedSemaphorePermit;

    async fn lock(&self) -> Fallible<OwnedSemaphorePermit> {
        Ok(self.clone().acquire_owned().await?)
    }

    async fn unlock(&self, permit: OwnedSemaphorePermit) -> Fallible<()> {
        drop(permit);
        Ok(())
    }
}
