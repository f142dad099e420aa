//! What a holding thread holds, and how it learns that it holds it no more.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tenure_backend::{ClaimRef, Evidence, FencingToken, Instant, LockKey, Mode};

use super::runtime::Runtime;
use crate::error::{Error, Lost};

/// A held lock. Dropping it gives the lock back, without waiting for that; [`unlock`](Guard::unlock) confirms it.
///
/// It is a value: whoever has it holds the lock, whatever thread it is on. What it promises is said at
/// [`tenure::Guard`](crate::Guard).
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
#[must_use = "a lock is given back when its guard is dropped"]
pub struct Guard {
    // Goes first: what it leaves behind is the runtime's to do.
    pub(super) inner: crate::Guard,
    pub(super) runtime: Runtime,
}

impl Guard {
    pub(super) fn take(
        runtime: &Runtime,
        lock: impl Future<Output = Result<crate::Guard, Error>>,
    ) -> Result<Self, Error> {
        let inner = runtime.block_on(lock)?;
        let runtime = runtime.clone();
        Ok(Guard { inner, runtime })
    }

    pub(super) fn try_take(
        runtime: &Runtime,
        lock: impl Future<Output = Result<Option<crate::Guard>, Error>>,
    ) -> Result<Option<Self>, Error> {
        let inner = runtime.block_on(lock)?;
        let runtime = runtime.clone();
        Ok(inner.map(|inner| Guard { inner, runtime }))
    }

    /// The number that fences this grant: greater than that of every conflicting grant of the key before it.
    ///
    /// `None` where the store has none. A guard that an owner took again has the token of the first.
    pub fn token(&self) -> Option<FencingToken> {
        self.inner.token()
    }

    /// As [`token`](Self::token), for resources that must be fenced.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the store has no tokens: ask [`Client::require`](super::Client::require) at the start.
    pub fn fence(&self) -> Result<FencingToken, Error> {
        self.inner.fence()
    }

    /// The key that is locked.
    pub fn key(&self) -> &LockKey {
        self.inner.key()
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// The claim's name in the store: what `tenure ls` shows and `tenure evict --claim` takes.
    pub fn claim(&self) -> &ClaimRef {
        self.inner.claim()
    }

    /// The backend's own proof of the grant, for its guarded-write helpers.
    pub fn evidence(&self) -> Option<&Evidence> {
        self.inner.evidence()
    }

    /// Whether the lock is believed to be held at this moment. Reads a clock, does no I/O.
    pub fn is_held(&self) -> bool {
        self.inner.is_held()
    }

    /// How long the lock is believed to be held unless a renewal comes; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// The moment at which belief ends unless a renewal comes, on the belief clock; its origin once it is lost.
    pub fn believe_until(&self) -> Instant {
        self.inner.believe_until()
    }

    /// How long the store keeps the lock without a renewal, as it said when it granted it: what was asked for, rounded
    /// to what the store can do.
    pub fn lease(&self) -> Duration {
        self.inner.lease()
    }

    /// Goes on only while the lock is held: for the steps of a long work. Reads a clock, does no I/O.
    ///
    /// # Errors
    /// [`Lost`], and then for ever.
    pub fn check(&self) -> Result<(), Lost> {
        self.inner.loss().map_or(Ok(()), Err)
    }

    /// Why the lock is lost, if it is.
    pub fn loss(&self) -> Option<Lost> {
        self.inner.loss()
    }

    /// Waits until the lock is lost, and says why: for a second thread that watches over the first.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn lost(&self) -> Lost {
        self.runtime.block_on(self.inner.lost())
    }

    /// Waits until the lock is lost, for at most `limit`; `None` if it is held until then.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn lost_within(&self, limit: Duration) -> Option<Lost> {
        self.runtime.block_within(limit, self.inner.lost())
    }

    /// Runs `work` on this thread, and answers what it gave if the lock was held from its beginning to its end.
    ///
    /// `work` does not begin once the lock is lost, and is not stopped when it is lost meanwhile: it may
    /// [`check`](Guard::check) the guard it is given.
    ///
    /// # Errors
    /// [`Lost`] if the lock was lost before `work` had finished: what it gave is dropped, and another may have worked at
    /// the same time.
    pub fn while_held<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Lost> {
        self.check()?;
        let output = work(self);
        self.check()?;
        Ok(output)
    }

    /// Asks the store whether the lock is held: one round trip, which also renews it.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is not; [`Error::Backend`] if the store did not answer, which says nothing of the lock.
    ///
    /// # Panics
    /// On a thread that drives async tasks.
    pub fn verify(&self) -> Result<(), Error> {
        self.runtime.block_on(self.inner.verify())
    }

    /// Gives the lock back, and confirms it: see [`tenure::Guard::unlock`](crate::Guard::unlock).
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock was not held any more when it was given back: another may have held it meanwhile.
    /// [`Error::Backend`] if the store did not answer in time; the watchdog goes on trying until the lease would
    /// have ended.
    ///
    /// # Panics
    /// On a thread that drives async tasks; the lock is then given back by the watchdog.
    pub fn unlock(self) -> Result<(), Error> {
        self.runtime.block_on(self.inner.unlock())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
