//! Tenure, as its users call it.
//! Not here: anything below the crate `tenure`.

use std::time::Duration;

use tenure::{Guard, Mutex, Settings};

use super::{Lock, Locker};
use crate::Fallible;

/// How long closing may take: far longer than giving back what the workers of a bench can leave.
const CLOSING: Duration = Duration::from_secs(10);

pub(crate) struct Tenure(tenure::Client);

impl Tenure {
    pub(crate) async fn connect(url: &str, settings: Settings) -> Fallible<Self> {
        Ok(Tenure(tenure::connect_with(url, settings).await?))
    }
}

impl Locker for Tenure {
    type Lock = Mutex;

    fn lock_of(&self, key: &str) -> Mutex {
        self.0.mutex(key)
    }

    async fn close(self) -> Fallible<()> {
        Ok(self.0.close(CLOSING).await?)
    }
}

impl Lock for Mutex {
    type Guard = Guard;

    async fn lock(&self) -> Fallible<Guard> {
        Ok(Mutex::lock(self).await?)
    }

    async fn unlock(&self, guard: Guard) -> Fallible<()> {
        Ok(guard.unlock().await?)
    }
}
