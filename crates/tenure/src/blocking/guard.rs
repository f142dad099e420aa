//! The guard of a held lock, for threads.

use std::time::Duration;

use super::adapter::{Blocking, blocking};
use crate::error::{Error, Lost};

/// A held lock. Dropping the guard releases the lock in the background; `unlock` waits for confirmation.
///
/// The guard may move between threads. It dereferences to [`tenure::Guard`](crate::Guard), which documents its
/// guarantees.
///
/// # Examples
/// A thread calls `check` between steps, to stop when its lock is lost:
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

/// A guard of one lock, or a value that dereferences to one.
pub trait HoldsOne {
    #[doc(hidden)]
    fn guard(&self) -> &crate::Guard;
}

impl HoldsOne for crate::Guard {
    fn guard(&self) -> &crate::Guard {
        self
    }
}

/// For a member of a [`MultiGuard`](super::MultiGuard), which is borrowed.
impl HoldsOne for &crate::Guard {
    fn guard(&self) -> &crate::Guard {
        self
    }
}

impl<T: HoldsOne> Blocking<T> {
    /// Waits for [`tenure::Guard::downgrade`](crate::Guard::downgrade).
    ///
    /// # Errors
    /// Those of the async method.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn downgrade(&self) -> Result<(), Error> {
        self.runtime.block_on(self.inner.guard().downgrade())
    }
}

/// What this module needs of a guard of the async API: its methods `check`, `lost` and `verify`, under one trait.
pub trait Holds {
    #[doc(hidden)]
    fn check_held(&self) -> Result<(), Lost>;
    #[doc(hidden)]
    fn wait_lost(&self) -> impl Future<Output = Lost>;
    #[doc(hidden)]
    fn verify_held(&self) -> impl Future<Output = Result<(), Error>>;
}

impl<T: HoldsOne> Holds for T {
    fn check_held(&self) -> Result<(), Lost> {
        self.guard().check()
    }

    async fn wait_lost(&self) -> Lost {
        self.guard().lost().await
    }

    async fn verify_held(&self) -> Result<(), Error> {
        self.guard().verify().await
    }
}

impl<T: Holds> Blocking<T> {
    /// Returns an error once the lock is lost. Call it between the steps of long work. Reads a clock, does no I/O.
    ///
    /// # Errors
    /// [`Lost`] on every call after the loss; for several locks, the loss of the first lost member.
    pub fn check(&self) -> Result<(), Lost> {
        self.inner.check_held()
    }

    /// Waits until the lock is lost, and returns the reason. Call it on a second thread, which then tells the first to
    /// stop.
    pub fn lost(&self) -> Lost {
        self.runtime.block_on(self.inner.wait_lost())
    }

    /// Waits at most `limit` until the lock is lost, and returns the reason; `None` if the lock is still held then.
    pub fn lost_within(&self, limit: Duration) -> Option<Lost> {
        self.runtime.block_within(limit, self.inner.wait_lost())
    }

    /// Runs `work` on this thread, and returns its output if the lock was held from the beginning to the end.
    ///
    /// `work` does not begin if the lock is already lost, and is not stopped if the lock is lost meanwhile: call
    /// `check` between its steps.
    ///
    /// # Errors
    /// [`Lost`] if the lock was lost before `work` finished: the output of `work` is dropped, and another holder may
    /// have worked at the same time.
    pub fn while_held<R>(&self, work: impl FnOnce(&Self) -> R) -> Result<R, Lost> {
        self.check()?;
        let output = work(self);
        self.check()?;
        Ok(output)
    }

    /// Calls [`tenure::Guard::verify`](crate::Guard::verify) for each lock and waits for the answers.
    ///
    /// # Errors
    /// Those of the async method.
    pub fn verify(&self) -> Result<(), Error> {
        self.runtime.block_on(self.inner.verify_held())
    }
}
