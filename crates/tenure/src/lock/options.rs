//! The options that mutexes, read-write locks and semaphores share.

use std::num::NonZeroU32;
use std::sync::Arc;

use tenure_backend::{Kind, LockKey, Mode};

use crate::acquire::{self, Acquire};
use crate::engine::Engine;
use crate::engine::attempt::{Attempt, Patience};
use crate::engine::queue::SharedQueue;
use crate::engine::request::{LockRequest, Options};
use crate::error::Error;
use crate::guard::Guard;

/// The part that all lock types share: the key's queue, and the mode and options of a request.
#[derive(Clone, Debug)]
pub(crate) struct LockHandle {
    pub(crate) queue: Result<Arc<SharedQueue>, Error>,
    pub(crate) request: LockRequest,
}

impl LockHandle {
    /// Creates a handle for a key. An invalid key fails at first use.
    pub(crate) fn new(engine: &Arc<Engine>, key: &str, mode: Mode) -> Self {
        let queue = LockKey::new(key)
            .map_err(Error::from)
            .map(|key| engine.queue(key, mode.kind()));
        let options = engine.options.clone();
        LockHandle {
            queue,
            request: LockRequest { mode, options },
        }
    }

    /// Creates a handle for a semaphore with `of` permits. Zero permits fail at first use.
    pub(crate) fn semaphore(engine: &Arc<Engine>, key: &str, of: u32) -> Self {
        let take = NonZeroU32::MIN;
        let asked = NonZeroU32::new(of);
        let of = asked.unwrap_or(take);
        let mut handle = Self::new(engine, key, Mode::Permits { take, of });
        if asked.is_none() {
            let message = "a semaphore has at least one permit: it was asked for with none";
            handle.queue = Err(Error::Invalid(message.into()));
        }
        handle
    }

    /// Returns a handle for the same key in another mode of the same kind.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        let mut handle = self.clone();
        handle.request.mode = mode;
        handle
    }

    /// Returns a handle that acquires `permits` permits of the same semaphore. Zero permits fail at first use.
    pub(crate) fn taking(&self, permits: u32) -> Self {
        match (NonZeroU32::new(permits), self.request.mode.kind()) {
            (Some(take), Kind::Semaphore { of }) => self.with_mode(Mode::Permits { take, of }),
            _ => LockHandle {
                queue: Err(Error::Invalid(
                    "at least one permit is taken: none were asked for".into(),
                )),
                request: self.request.clone(),
            },
        }
    }

    pub(crate) fn lock(&self, patience: Patience) -> Acquire<Guard> {
        Acquire::one(self.attempt(patience), acquire::guard)
    }

    /// Waits for as long as the client's settings say.
    pub(crate) fn lock_by_default(&self) -> Acquire<Guard> {
        self.lock(Patience::up_to(self.request.options.limit))
    }

    pub(crate) fn try_lock(&self) -> Acquire<Option<Guard>> {
        Acquire::one(self.attempt(Patience::Try), acquire::try_guard)
    }

    pub(crate) fn attempt(&self, patience: Patience) -> Attempt {
        Attempt::new(self.queue.clone(), self.request.clone(), patience)
    }

    pub(crate) fn set(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(Arc::make_mut(&mut self.request.options));
        self
    }
}

/// A lock type with options, in the async or the blocking API.
pub(crate) trait Configure: Sized {
    fn set(self, change: impl FnOnce(&mut Options)) -> Self;
}

/// Adds the option methods to a lock type: one definition, so that all lock types have the same options and docs.
macro_rules! options {
    ($lock:ident) => {
        impl crate::lock::options::Configure for $lock {
            fn set(self, change: impl FnOnce(&mut crate::engine::request::Options)) -> Self {
                Self(self.0.set(change))
            }
        }

        crate::lock::options::options!(for $lock);
    };
    (for $lock:ty) => {
        impl $lock {
            /// Serves waiters first come, first served, across all clients of the store.
            pub fn fair(self) -> Self {
                crate::lock::options::Configure::set(self, |options| options.fairness = tenure_backend::Fairness::Fifo)
            }

            /// Sets the lease: how long the store keeps the lock if this client dies. The watchdog renews the lock after
            /// each third of the lease.
            ///
            /// The default is [`Settings::lease`](crate::Settings::lease), 30 s. At least 30 ms.
            #[doc(alias = "ttl")]
            pub fn lease(self, lease: std::time::Duration) -> Self {
                crate::lock::options::Configure::set(self, |options| {
                    options.lease = lease;
                    options.terms.renewed = true;
                })
            }

            /// Sets a lease that is never renewed: the lock is lost when it ends.
            ///
            /// While no other task of this client waits for the lock, the client checks the lock in the store only at the
            /// profile's [`first_renewal`](crate::Profile::first_renewal) and after a reconnect. A holder therefore
            /// detects an eviction at one of these checks, when its lease ends, or by
            /// [`verify`](crate::Guard::verify). While other tasks of this client wait, the client checks the lock
            /// after each third of the lease, and at least every 10 s.
            #[doc(alias("ttl", "expire"))]
            pub fn fixed_lease(self, lease: std::time::Duration) -> Self {
                crate::lock::options::Configure::set(self, |options| {
                    options.lease = lease;
                    options.terms.renewed = false;
                })
            }

            /// Limits the hold to `time`: the lock is then lost, and the watchdog releases it.
            pub fn max_hold(self, time: std::time::Duration) -> Self {
                crate::lock::options::Configure::set(self, |options| options.terms.max_hold = Some(time))
            }

            /// Keeps the lock for at least `time`, even if its guard is released or dropped earlier: for scheduled jobs
            /// that must not run twice although the clocks of their hosts differ.
            ///
            /// When the guard is released or dropped, the client asks the store to keep the lock for the remaining
            /// time, which then passes even if this process ends. Once this client is closed, the store keeps the lock
            /// for at most the store's longest lease. On etcd and ZooKeeper, no renewal makes a lease longer than it was,
            /// so there it keeps the lock for at most its own lease: give it a `lease` as long. A `time` longer than `max_hold` or than a fixed lease is
            /// [`Invalid`](crate::Error::Invalid).
            pub fn at_least(self, time: std::time::Duration) -> Self {
                crate::lock::options::Configure::set(self, |options| options.terms.at_least = Some(time))
            }

            /// Sets the holder's label, as shown by `tenure ls`. The default is
            /// [`Settings::label`](crate::Settings::label).
            pub fn label(self, label: impl Into<std::sync::Arc<str>>) -> Self {
                crate::lock::options::Configure::set(self, |options| options.label = label.into())
            }

            /// Acquires the lock for an owner, which may acquire the lock again while holding it.
            ///
            /// Acquiring it again shares the first claim: the lease, `max_hold`, `at_least` and label of the first
            /// acquisition apply, and those of later ones are ignored; see [`Owner`](crate::Owner).
            #[doc(alias = "reentrant")]
            pub fn owned_by(self, owner: &crate::Owner) -> Self {
                crate::lock::options::Configure::set(self, |options| options.owner = Some(owner.clone()))
            }
        }
    };
}
pub(crate) use options;
