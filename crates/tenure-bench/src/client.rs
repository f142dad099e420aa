//! The interface of a client under test. To add another lock library, add a type in `peers` and a variant of
//! `plan::Client`, then follow `Client::Rlock` through `plan.rs`, `tasks.rs` and `report.rs`.

pub(crate) mod peers;
pub(crate) mod polling;
pub(crate) mod statements;
pub(crate) mod waiting;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::Fallible;

/// One key, as one worker uses it. `lock` and `unlock` are measured.
pub(crate) trait Lock: Send + Sync + 'static {
    type Guard: Send;

    fn lock(&self) -> impl Future<Output = Fallible<Self::Guard>> + Send;

    /// Returns once the key is free, as far as the library reports it.
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

/// The baseline for memory: `tokio::sync::Mutex`, close to the cost of waking the next task. It promises far less: no
/// lease, no token, no names, no inspection, no eviction, and no other store.
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
