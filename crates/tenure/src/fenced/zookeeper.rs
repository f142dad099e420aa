//! Writes to ZooKeeper that have no effect after the claim has ended.

use tenure_backend::{BackendError, Effect, Fault};

use crate::connect::zookeeper::LockEvidence;
use crate::error::Error;
use crate::guard::Guard;

/// Sets the data of a node in ZooKeeper, if the guard's claim still holds its lock in that ZooKeeper. The node must exist.
///
/// ZooKeeper checks the claim's node and writes in one transaction, so no later holder can write before it. The write needs no
/// place for a token, and uses the session of the lock. The path is the whole one, and begins at ZooKeeper's root. For a
/// transaction of your own, check what [`Guard::evidence`] names as a [`LockEvidence`].
///
/// # Cancel safety
/// The data may be set if the future is dropped.
///
/// # Errors
/// - [`Error::Lost`] if the claim has ended: nothing was written.
/// - [`Error::Unsupported`] if the lock is in another store.
/// - [`Error::Backend`] if the node does not exist, or ZooKeeper did not answer. Its [`effect`](Error::effect) tells whether the
///   data may have been set.
///
/// # Examples
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// let guard = client.mutex("stock:42").lock().await?;
/// tenure::fenced::set_in_zookeeper(&guard, "/stock/42", "7").await?;
/// # Ok(()) }
/// ```
pub async fn set_in_zookeeper(guard: &Guard, path: &str, data: impl AsRef<[u8]>) -> Result<(), Error> {
    let evidence = guard
        .evidence()
        .and_then(|evidence| evidence.get::<LockEvidence>());
    let Some(evidence) = evidence else {
        let message = "this lock is not in ZooKeeper: compare its token in your own resource";
        return Err(BackendError::unsupported(message).into());
    };
    if evidence.set_data(path, data.as_ref()).await? {
        return Ok(());
    }
    // The claim's node is gone, so a renewal learns of the loss.
    guard.verify().await?;
    let message = "ZooKeeper did not find the claim's node, and then found it: write again";
    Err(BackendError::new(Fault::Unavailable, Effect::None, message).into())
}
