//! What a client under test must be able to do. A peer library is one more type in `peers`, one more variant
//! of `plan::Client`, and one more line in `tasks::work`.

pub(crate) mod peers;
pub(crate) mod polling;
pub(crate) mod statements;
pub(crate) mod waiting;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::Fallible;

/// One key, as one worker sees it. These two calls are what is measured.
pub(crate) trait Lock: Send + Sync + 'static {
    type Guard: Send;

    fn lock(&self) -> impl Future<Output = Fallible<Self::Guard>> + Send;

    /// Returns once the key is free as far as the client can know.
    fn unlock(&self, guard: Self::Guard) -> impl Future<Output = Fallible<()>> + Send;
}

/// Tenure, as its users call it.
impl Lock for tenure::Mutex {
    type Guard = tenure::Guard;

    async fn lock(&self) -> Fallible<tenure::Guard> {
        Ok(tenure::Mutex::lock(self).await?)
    }

    async fn unlock(&self, guard: tenure::Guard) -> Fallible<()> {
        Ok(guard.unlock().await?)
    }
}

/// Beside memory: `tokio::sync::Mutex`, as close as one comes to what handing a turn from task to task costs.
/// It promises far less: no lease, no token, no names, nothing to see or to evict, and no store that could be another.
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
