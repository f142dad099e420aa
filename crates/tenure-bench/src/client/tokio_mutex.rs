//! Beside memory: `tokio::sync::Mutex`, as close as one comes to what handing a turn from task to task costs.
//! It promises far less: no lease, no token, no names, nothing to see or to evict, and no store that could be another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use super::{Lock, Locker};
use crate::Fallible;

/// A mutex for each key that was asked for.
#[derive(Default)]
pub(crate) struct TokioMutexes(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Locker for TokioMutexes {
    type Lock = Arc<tokio::sync::Mutex<()>>;

    fn lock_of(&self, key: &str) -> Self::Lock {
        let mut mutexes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mutexes.entry(key.to_owned()).or_default().clone()
    }
}

impl Lock for Arc<tokio::sync::Mutex<()>> {
    type Guard = OwnedMutexGuard<()>;

    async fn lock(&self) -> Fallible<Self::Guard> {
        Ok(self.clone().lock_owned().await)
    }

    async fn unlock(&self, guard: Self::Guard) -> Fallible<()> {
        drop(guard);
        Ok(())
    }
}
