//! Several locks held together, all or nothing, for threads.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;

use super::guard::Guard;
use super::mutex::Mutex;
use super::runtime::Runtime;
use super::rwlock::RwLock;
use super::semaphore::Semaphore;
use crate::acquire::Acquire;
use crate::error::{Error, Lost};

/// One lock among those that are held together. A [`Mutex`] is one; see also [`read`](Member::read),
/// [`write`](Member::write) and [`permits`](Member::permits).
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
#[derive(Clone, Debug)]
pub struct Member {
    inner: crate::Member,
    runtime: Runtime,
}

impl Member {
    /// The shared side of a read-write lock.
    pub fn read(lock: &RwLock) -> Self {
        Self::new(crate::Member::read(&lock.inner), &lock.runtime)
    }

    /// The exclusive side of a read-write lock.
    pub fn write(lock: &RwLock) -> Self {
        Self::new(crate::Member::write(&lock.inner), &lock.runtime)
    }

    /// So many permits of a semaphore.
    pub fn permits(semaphore: &Semaphore, permits: u32) -> Self {
        Self::new(
            crate::Member::permits(&semaphore.inner, permits),
            &semaphore.runtime,
        )
    }

    fn new(inner: crate::Member, runtime: &Runtime) -> Self {
        let runtime = runtime.clone();
        Member { inner, runtime }
    }
}

impl From<Mutex> for Member {
    fn from(mutex: Mutex) -> Self {
        Self::from(&mutex)
    }
}

impl From<&Mutex> for Member {
    fn from(mutex: &Mutex) -> Self {
        Self::new((&mutex.inner).into(), &mutex.runtime)
    }
}

/// Several locks that are taken and given back together, of one client or of several: see
/// [`tenure::Multi`](crate::Multi).
///
/// # Panics
/// Every call that can wait panics on a thread that drives async tasks.
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
#[derive(Clone, Debug)]
pub struct Multi {
    inner: crate::Multi,
    /// Those of the members' clients. A search waits on the first one's timers.
    runtimes: Vec<Runtime>,
}

/// Locks to be held together. A member named twice, or none at all, is `Invalid` at first use.
pub fn multi(members: impl IntoIterator<Item = impl Into<Member>>) -> Multi {
    let (members, runtimes): (Vec<_>, _) = members
        .into_iter()
        .map(Into::into)
        .map(|Member { inner, runtime }| (inner, runtime))
        .unzip();
    Multi {
        inner: crate::multi(members),
        runtimes,
    }
}

impl Multi {
    /// Waits for all members, for as long as it takes.
    ///
    /// # Errors
    /// As [`Acquire`](crate::Acquire).
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        self.run(self.inner.lock()).map(|inner| self.guard(inner))
    }

    /// Waits for all members for at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`]; else as [`lock`](Multi::lock).
    pub fn lock_within(&self, limit: Duration) -> Result<MultiGuard, Error> {
        self.run(self.inner.lock_within(limit))
            .map(|inner| self.guard(inner))
    }

    /// Takes all members if they are free; `None` if any is busy.
    ///
    /// # Errors
    /// As [`lock`](Multi::lock), and [`Error::Backend`] if a store does not answer.
    pub fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        let inner = self.run(self.inner.try_lock())?;
        Ok(inner.map(|inner| self.guard(inner)))
    }

    fn run<G>(&self, search: Acquire<G>) -> Result<G, Error> {
        match self.runtimes.first() {
            Some(runtime) => runtime.block_on(search),
            None => search
                .now_or_never()
                .expect("a search for no members is refused before it waits"),
        }
    }

    fn guard(&self, inner: crate::MultiGuard) -> MultiGuard {
        let each = inner.guards.into_iter().zip(self.runtimes.iter().cloned());
        MultiGuard {
            guards: each.map(|(inner, runtime)| Guard { inner, runtime }).collect(),
        }
    }
}

const HAS_MEMBERS: &str = "a multi-lock that is held has members";

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
#[must_use = "locks are given back when their guard is dropped"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The guards, in the order in which the members were named.
    pub fn members(&self) -> &[Guard] {
        &self.guards
    }

    /// Whether all members are believed to be held at this moment.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// Goes on only while all members are held.
    ///
    /// # Errors
    /// [`Lost`] of the first member that is lost.
    pub fn check(&self) -> Result<(), Lost> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Waits until any member is lost, and says why.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn lost(&self) -> Lost {
        self.runtime().block_on(self.any_lost())
    }

    /// Waits until any member is lost, for at most `limit`; `None` if all are held until then.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn lost_within(&self, limit: Duration) -> Option<Lost> {
        self.runtime().block_within(limit, self.any_lost())
    }

    /// Runs `work` on this thread, and answers what it gave if all members were held from its beginning to its end; see
    /// [`Guard::while_held`].
    ///
    /// # Errors
    /// [`Lost`] if any member was lost before `work` had finished.
    pub fn while_held<T>(&self, work: impl FnOnce(&MultiGuard) -> T) -> Result<T, Lost> {
        self.check()?;
        let output = work(self);
        self.check()?;
        Ok(output)
    }

    /// Gives all members back, at the same time, and confirms it.
    ///
    /// # Errors
    /// The first member's error; the others are given back all the same.
    ///
    /// # Panics
    /// On a thread that drives async tasks; the locks are then given back by the watchdog.
    pub fn unlock(self) -> Result<(), Error> {
        let (guards, runtimes): (Vec<_>, Vec<_>) = self
            .guards
            .into_iter()
            .map(|Guard { inner, runtime }| (inner, runtime))
            .unzip();
        let runtime = runtimes.first().expect(HAS_MEMBERS);
        runtime.block_on(crate::MultiGuard { guards }.unlock())
    }

    async fn any_lost(&self) -> Lost {
        let members = self.guards.iter().map(|guard| Box::pin(guard.inner.lost()));
        select_all(members).await.0
    }

    fn runtime(&self) -> &Runtime {
        &self.guards.first().expect(HAS_MEMBERS).runtime
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.guards).finish()
    }
}
