//! Writes to etcd that have no effect after the claim has ended.

use crate::connect::etcd::LockEvidence;
use tenure_backend::{BackendError, Effect, Fault};

use crate::error::Error;
use crate::guard::Guard;

/// Writes a key in etcd, if the guard's claim still holds its lock in that etcd.
///
/// etcd compares the claim's key and writes in one transaction, so nothing is written once another claim can hold the lock. The
/// write needs no column or key for a token, and uses the connection of the lock's store. For a transaction of your own, compare what
/// [`Guard::evidence`] names as a [`LockEvidence`].
///
/// # Cancel safety
/// The key may be written if the future is dropped.
///
/// # Errors
/// - [`Error::Lost`] if the claim has ended: nothing was written.
/// - [`Error::Unsupported`] if the lock is in another store.
/// - [`Error::Backend`] if etcd did not answer. Its [`effect`](Error::effect) tells whether the key may have been written.
///
/// # Examples
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let guard = client.mutex("stock:42").lock().await?;
/// tenure::fenced::put_in_etcd(&guard, "stock/42", "7").await?;
/// # Ok(()) }
/// ```
pub async fn put_in_etcd(
    guard: &Guard,
    key: impl Into<Vec<u8>>,
    value: impl Into<Vec<u8>>,
) -> Result<(), Error> {
    let evidence = guard
        .evidence()
        .and_then(|evidence| evidence.get::<LockEvidence>());
    let Some(evidence) = evidence else {
        let message = "this lock is not in etcd: compare its token in your own resource";
        return Err(BackendError::unsupported(message).into());
    };
    if evidence.put(key, value).await? {
        return Ok(());
    }
    // The key of the claim is gone, so a renewal learns of the loss.
    guard.verify().await?;
    let message = "etcd did not find the claim's key, and then found it: write again";
    Err(BackendError::new(Fault::Unavailable, Effect::None, message).into())
}
