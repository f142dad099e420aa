//! What a client under test must be able to do. A peer library is one more type in `peers`, one more variant
//! of `plan::Client`, and one more line in `tasks::work`.
//! Not here: any client.

pub(crate) mod peers;
pub(crate) mod polling;
pub(crate) mod statements;
pub(crate) mod tenure;
pub(crate) mod tokio_mutex;
mod waiting;

use std::future::Future;

use crate::Fallible;

/// A connection to a store, from which locks come.
pub(crate) trait Locker: Send + Sync + 'static {
    type Lock: Lock;

    /// Done once for each worker, before anything is measured.
    fn lock_of(&self, key: &str) -> Self::Lock;

    /// Leaves the store in order.
    fn close(self) -> impl Future<Output = Fallible<()>> + Send
    where
        Self: Sized,
    {
        std::future::ready(Ok(()))
    }
}

/// One key, as one worker sees it. These two calls are what is measured.
pub(crate) trait Lock: Send + Sync + 'static {
    type Guard: Send;

    fn lock(&self) -> impl Future<Output = Fallible<Self::Guard>> + Send;

    /// Returns once the key is free as far as the client can know.
    fn unlock(&self, guard: Self::Guard) -> impl Future<Output = Fallible<()>> + Send;
}
