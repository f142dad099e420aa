//! Turning a held write lock into a read lock.

use tenure_backend::Mode;

use super::Guard;
use crate::error::Error;

impl Guard {
    /// Turns this write lock into a read lock, in one atomic step: no writer holds the key in between.
    ///
    /// Readers that wait are let in at once, unless a writer is ahead of them in a queue. The guard stays as it is, except
    /// for its [`mode`](Self::mode): key, claim, token and lease are the same. The token need not change, because
    /// every later conflicting grant has a greater one.
    ///
    /// Do not write from the call on, unless it fails with `Invalid` or `Unsupported`. On a guard that holds the read
    /// lock this method does nothing.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is still held, for reading or for writing. The watchdog repeats the downgrade with
    /// each renewal until the store confirms it; until then no other reader of this client gets in.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this is no guard of a read-write lock, or if the owner has several guards on it: drop the others
    /// first. [`Error::Lost`] if the lock is not held. [`Error::Backend`] if the store did not answer: the lock is still held,
    /// for reading or for writing, and the watchdog goes on as described above. [`Error::Unsupported`] if the store cannot
    /// downgrade: the lock is still held for writing. [`Error::Closed`] if the client was closed, or its runtime has ended.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
    /// let client = tenure::connect("memory:").await?;
    /// let lock = client.rwlock("catalogue");
    /// let guard = lock.write().await?;
    /// println!("written under {:?}", guard.token());
    /// guard.downgrade().await?;
    /// let reader = lock.read().await?;
    /// # drop((guard, reader)); Ok(()) }
    /// ```
    pub async fn downgrade(&self) -> Result<(), Error> {
        let held = self.held();
        held.check()?;
        match self.mode() {
            Mode::Read => return Ok(()),
            Mode::Write => {}
            Mode::Exclusive | Mode::Permits { .. } => {
                let message = "only a guard of a read-write lock can be downgraded";
                return Err(Error::Invalid(message.into()));
            }
        }
        match &held.owner {
            None => held.hold.ask_downgrade(),
            Some(owner) if owner.ask_downgrade(&held.hold) => {}
            Some(_) => {
                let message =
                    "other guards of this owner share the write lock: drop them before the downgrade";
                return Err(Error::Invalid(message.into()));
            }
        }
        self.verify().await
    }
}
