//! Tenure, as its users call it.
//! Not here: anything below the crate `tenure`.

use std::path::Path;
use std::time::Duration;

use tenure::{Guard, Mutex, Settings};

use super::{Lock, Locker};
use crate::Fallible;
use crate::plan::Store;

/// How long closing may take: far longer than giving back what the workers of a bench can leave.
const CLOSING: Duration = Duration::from_secs(10);

/// The lock file within a crew's folder.
pub(crate) const FILE: &str = "locks.db";

pub(crate) struct Tenure(tenure::Client);

impl Tenure {
    pub(crate) async fn connect(store: Store, folder: &Path, settings: Settings) -> Fallible<Self> {
        let url = match store {
            Store::Memory => "memory:".to_owned(),
            Store::Sqlite => format!("sqlite:{}", encoded(&folder.join(FILE))),
        };
        Ok(Tenure(tenure::connect_with(&url, settings).await?))
    }
}

/// A path as it stands in a URL.
fn encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(String::new(), |text, &byte| match plain(byte) {
        true => text + &char::from(byte).to_string(),
        false => text + &format!("%{byte:02X}"),
    })
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
