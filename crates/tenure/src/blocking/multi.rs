//! Several locks held together, all or nothing, for threads.

use std::time::Duration;

use super::adapter::{Blocking, blocking};
use super::guard::Holds;
use super::locks::{Mutex, RwLock, Semaphore};
use super::runtime::Runtime;

/// One lock among those that are held together: see [`tenure::Member`](crate::Member). A [`Mutex`] is one.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tenure::Error> {
/// use tenure::blocking::{Member, multi};
///
/// let client = tenure::blocking::connect("memory:")?;
/// let (catalogue, slots) = (client.rwlock("catalogue"), client.semaphore("imports", 4));
/// let members = [Member::read(&catalogue), Member::permits(&slots, 2), client.mutex("supplier:7").into()];
/// let guards = multi(members).lock()?;
/// assert!(catalogue.try_write()?.is_none());
/// guards.unlock()
/// # }
/// ```
pub type Member = Blocking<crate::Member>;

impl Member {
    /// The shared side of a read-write lock.
    pub fn read(lock: &RwLock) -> Self {
        lock.beside(crate::Member::read(&lock.inner))
    }

    /// The exclusive side of a read-write lock.
    pub fn write(lock: &RwLock) -> Self {
        lock.beside(crate::Member::write(&lock.inner))
    }

    /// So many permits of a semaphore.
    pub fn permits(semaphore: &Semaphore, permits: u32) -> Self {
        semaphore.beside(crate::Member::permits(&semaphore.inner, permits))
    }
}

impl From<Mutex> for Member {
    fn from(mutex: Mutex) -> Self {
        mutex.change(Into::into)
    }
}

impl From<&Mutex> for Member {
    fn from(mutex: &Mutex) -> Self {
        mutex.beside((&mutex.inner).into())
    }
}

/// Several locks that are taken and given back together, of one client or of several: see
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

/// Locks to be held together. A member named twice, or none at all, is `Invalid` at first use.
pub fn multi(members: impl IntoIterator<Item = impl Into<Member>>) -> Multi {
    let each = members.into_iter().map(Into::into);
    let (members, runtimes): (Vec<_>, Vec<_>) = each.map(|member| (member.inner, member.runtime)).unzip();
    Blocking::over(crate::multi(members), &Runtime::of_all(&runtimes))
}

blocking!(Multi waits {
    lock() -> MultiGuard;
    lock_within(limit: Duration) -> MultiGuard;
    try_lock() -> Option<MultiGuard>;
});

/// Several held locks. Dropping it gives them all back, without waiting for that.
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
    fn guards(&self) -> &[crate::Guard] {
        self.members()
    }
}

impl MultiGuard {
    /// The guards, in the order in which the members were named.
    pub fn members(&self) -> Vec<Blocking<&crate::Guard>> {
        self.inner
            .members()
            .iter()
            .map(|guard| self.beside(guard))
            .collect()
    }
}
