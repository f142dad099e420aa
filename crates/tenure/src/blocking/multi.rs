//! Several locks held together, all or nothing, for threads.

use std::time::Duration;

use super::adapter::{Blocking, blocking};
use super::guard::Holds;
use super::locks::Lock;
use super::runtime::Runtime;
use super::scope::scoped;
use crate::error::{Error, Lost};

/// Combines several locks, of one client or of several, that are acquired and released together: see
/// [`tenure::Multi`](crate::Multi).
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// use tenure::blocking::{connect, multi};
///
/// let client = connect("memory:")?;
/// let guards = multi([client.mutex("account:1"), client.mutex("account:2")]).lock()?;
/// assert_eq!(guards.members().len(), 2);
/// guards.unlock()?;
/// # Ok(()) }
/// ```
pub type Multi = Blocking<crate::Multi>;

/// Combines a list of locks of one type into a multi-lock; [`and`](Multi::and) adds locks of other types.
///
/// An empty list, or two locks of one client with the same key, is `Invalid` at first use.
pub fn multi(members: impl IntoIterator<Item = impl Into<Lock>>) -> Multi {
    let each = members.into_iter().map(Into::into);
    let (members, runtimes): (Vec<_>, Vec<_>) = each.map(|member| (member.inner, member.runtime)).unzip();
    Blocking::over(crate::multi(members), &Runtime::of_all(&runtimes))
}

scoped!(Multi -> MultiGuard by lock, lock_within);

impl Multi {
    /// Adds a lock of any kind, of the same client or of another.
    pub fn and(self, lock: impl Into<Lock>) -> Self {
        let lock = lock.into();
        let runtime = Runtime::of_all(&[self.runtime, lock.runtime]);
        Blocking::over(self.inner.and(lock.inner), &runtime)
    }
}

blocking!(Multi waits {
    lock() -> MultiGuard;
    lock_within(limit: Duration) -> MultiGuard;
    try_lock() -> Option<MultiGuard>;
});

/// The guard of several held locks. Dropping the guard releases them all in the background.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// use tenure::blocking::multi;
///
/// let client = tenure::blocking::connect("memory:")?;
/// let guards = multi([client.mutex("account:1"), client.mutex("account:2")]).lock()?;
/// for _transfer in 0..3 {
///     // Between two steps: a thread cannot be stopped in the middle of one.
///     guards.check()?;
/// }
/// guards.unlock()
/// # }
/// ```
pub type MultiGuard = Blocking<crate::MultiGuard>;

blocking!(MultiGuard ends {
    unlock();
});

impl Holds for crate::MultiGuard {
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

impl MultiGuard {
    /// The guards, in the order in which the members were given.
    pub fn members(&self) -> Vec<Blocking<&crate::Guard>> {
        self.inner
            .members()
            .iter()
            .map(|guard| self.sibling(guard))
            .collect()
    }
}
