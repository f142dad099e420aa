//! What a holding thread holds, and how it learns that it holds it no more.

use std::time::Duration;

use super::adapter::{Blocking, blocking};
use crate::error::{Error, Lost};

/// A held lock. Dropping it gives the lock back, without waiting for that; `unlock` confirms it.
///
/// It is a value: whoever has it holds the lock, whatever thread it is on. What it promises is said at
/// [`tenure::Guard`](crate::Guard), to which it dereferences.
///
/// # Examples
/// A thread that is to stop when its lock is lost asks between its steps:
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// let client = tenure::blocking::connect("memory:")?;
/// let guard = client.mutex("import").lock()?;
/// for page in 1..=3 {
///     guard.check()?;
///     println!("page {page}, fenced by {:?}", guard.token());
/// }
/// guard.unlock()?;
/// # Ok(()) }
/// ```
pub type Guard = Blocking<crate::Guard>;

blocking!(Guard ends {
    unlock();
});

/// A guard of the async API: the calls that have the same name in the blocking one.
pub trait Holds {
    #[doc(hidden)]
    fn check_held(&self) -> Result<(), Lost>;
    #[doc(hidden)]
    fn wait_lost(&self) -> impl Future<Output = Lost>;
    #[doc(hidden)]
    fn verify_held(&self) -> impl Future<Output = Result<(), Error>>;
}

impl Holds for crate::Guard {
    fn check_held(&self) -> Result<(), Lost> {
        self.check()
    }

    async fn wait_lost(&self) -> Lost {
        self.lost().await
    }

    async fn verify_held(&self) -> Result<(), Error> {
        self.verify().await
    }
}

impl Holds for &crate::Guard {
    fn check_held(&self) -> Result<(), Lost> {
        self.check()
    }

    async fn wait_lost(&self) -> Lost {
        self.lost().await
    }

    async fn verify_held(&self) -> Result<(), Error> {
        self.verify().await
    }
}

impl<T: Holds> Blocking<T> {
    /// Goes on only while it is held: for the steps of a long work. Reads a clock, does no I/O.
    ///
    /// # Errors
    /// [`Lost`], and then for ever; of several locks, that of the first that is lost.
    pub fn check(&self) -> Result<(), Lost> {
        self.inner.check_held()
    }

    /// Waits until it is lost, and says why: for a second thread that watches over the first.
    pub fn lost(&self) -> Lost {
        self.runtime.block_on(self.inner.wait_lost())
    }

    /// Waits until it is lost, for at most `limit`; `None` if it is held until then.
    pub fn lost_within(&self, limit: Duration) -> Option<Lost> {
        self.runtime.block_within(limit, self.inner.wait_lost())
    }

    /// Runs `work` on this thread, and answers what it gave if all was held from its beginning to its end.
    ///
    /// `work` does not begin once it is lost, and is not stopped when it is lost meanwhile: it may `check` what it is given.
    ///
    /// # Errors
    /// [`Lost`] if it was lost before `work` had finished: what `work` gave is dropped, and another may have worked at the
    /// same time.
    pub fn while_held<R>(&self, work: impl FnOnce(&Self) -> R) -> Result<R, Lost> {
        self.check()?;
        let output = work(self);
        self.check()?;
        Ok(output)
    }

    /// Waits for [`tenure::Guard::verify`](crate::Guard::verify), of each lock.
    ///
    /// # Errors
    /// Those of the async method.
    pub fn verify(&self) -> Result<(), Error> {
        self.runtime.block_on(self.inner.verify_held())
    }
}
