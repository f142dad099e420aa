//! Proof of a grant, and writes that have no effect without it.

use std::fmt;
use std::sync::Arc;

use tenure_backend::{BackendError, Effect, Fault};

use super::requests::{created, put, read};
use crate::client::Client;

/// Proof of a grant. A transaction of your own that compares the key's create revision has no effect after the claim has
/// ended.
///
/// # Examples
/// ```no_run
/// use tenure_etcd::LockEvidence;
///
/// /// What `etcdctl txn` reads: the comparison, and what it guards.
/// fn guarded(evidence: &LockEvidence, write: &str) -> String {
///     let key = String::from_utf8_lossy(&evidence.key);
///     format!("create({key:?}) = \"{}\"\n\n{write}\n\n\n", evidence.create_revision)
/// }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct LockEvidence {
    /// The claim's key.
    pub key: Vec<u8>,
    /// The revision that created the key.
    pub create_revision: i64,
    pub(super) client: Arc<Client>,
}

impl LockEvidence {
    /// Writes a key of yours over the store's connection, in one transaction. Returns false, and writes nothing, if the claim has
    /// ended.
    ///
    /// # Cancel safety
    /// The key may be written if the future is dropped.
    ///
    /// # Errors
    /// As any request; [`Fault::Invalid`] for a key below the lock's name, which would wait for the lock. With an unknown effect
    /// the key may have been written, while the claim held the lock.
    pub async fn put(
        &self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<bool, BackendError> {
        let key = key.into();
        if key.rsplitn(2, |byte| *byte == b'/').nth(1) == self.key.rsplitn(2, |byte| *byte == b'/').nth(1) {
            let message = "this key would be a contender of the lock: give the locks a prefix of their own in the store's URL";
            return Err(BackendError::new(Fault::Invalid, Effect::None, message));
        }
        let holds = created(&self.key, self.create_revision);
        let write = put(key, value, Some(0));
        let reply = self
            .client
            .txn(vec![holds], vec![write], vec![read(&*self.key)])
            .await?;
        Ok(reply.succeeded)
    }
}

impl fmt::Debug for LockEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockEvidence")
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("create_revision", &self.create_revision)
            .finish()
    }
}
