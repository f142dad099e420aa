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

/// What every face is made of: where to go, and what to ask for.
#[derive(Clone, Debug)]
pub(crate) struct LockHandle {
    pub(crate) queue: Result<Arc<SharedQueue>, Error>,
    pub(crate) request: LockRequest,
}

impl LockHandle {
    /// A face on that key; what is wrong with it is told at first use.
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

    /// A semaphore's face: `of` permits of which claims take some.
    pub(crate) fn semaphore(engine: &Arc<Engine>, key: &str, of: u32) -> Self {
        let take = NonZeroU32::MIN;
        let asked = NonZeroU32::new(of);
        let of = asked.unwrap_or(take);
        let mut face = Self::new(engine, key, Mode::Permits { take, of });
        if asked.is_none() {
            let message = "a semaphore has at least one permit: it was asked for with none";
            face.queue = Err(Error::Invalid(message.into()));
        }
        face
    }

    /// The same face in another mode of the same kind.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        let mut face = self.clone();
        face.request.mode = mode;
        face
    }

    /// The same semaphore, taking that many permits.
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

    /// Waits for the lock.
    pub(crate) fn lock(&self, patience: Patience) -> Acquire<Guard> {
        Acquire::one(self.attempt(patience), acquire::guard)
    }

    /// Takes the lock if it is free.
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

/// What has options: a face, here or in the blocking API.
pub(crate) trait Configure: Sized {
    fn set(self, change: impl FnOnce(&mut Options)) -> Self;
}

/// The options as methods of a face: one definition, so that they read the same everywhere.
macro_rules! options {
    ($face:ident) => {
        impl crate::lock::options::Configure for $face {
            fn set(self, change: impl FnOnce(&mut crate::engine::request::Options)) -> Self {
                Self(self.0.set(change))
            }
        }

        crate::lock::options::options!(for $face);
    };
    (for $face:ty) => {
        impl $face {
            /// Serves waiters first come, first served, across all clients of the store.
            pub fn fair(self) -> Self {
                crate::lock::options::Configure::set(self, |options| options.fairness = tenure_backend::Fairness::Fifo)
            }

            /// Sets the lease: how long the store keeps the lock if this client dies. Renewed at a third of it.
            ///
            /// The default is [`Settings::lease`](crate::Settings::lease), 30 s. At least 30 ms.
            #[doc(alias = "ttl")]
            pub fn lease(self, lease: std::time::Duration) -> Self {
                crate::lock::options::Configure::set(self, |options| {
                    options.lease = lease;
                    options.terms.renewed = true;
                })
            }

            /// Sets a lease that is never renewed: belief ends with it, whatever the holder does.
            ///
            /// Nothing is sent while it is held and nobody of this client waits for it, so a holder that is evicted learns
            /// of it when its lease ends, or by [`verify`](crate::Guard::verify). While others wait, the store is asked
            /// each third of the lease, and every 10 s at least.
            #[doc(alias("ttl", "expire"))]
            pub fn fixed_lease(self, lease: std::time::Duration) -> Self {
                crate::lock::options::Configure::set(self, |options| {
                    options.lease = lease;
                    options.terms.renewed = false;
                })
            }

            /// Ends the hold after that time: the lock is then lost, and the watchdog gives it back.
            pub fn max_hold(self, time: std::time::Duration) -> Self {
                crate::lock::options::Configure::set(self, |options| options.terms.max_hold = Some(time))
            }

            /// Keeps the lock for at least that time, even if its guard goes earlier: for jobs on hosts with skewed
            /// clocks, that must not run again at once.
            ///
            /// When the guard goes, the store is told to keep it for what is left, also if this process ends, but never
            /// for longer than its longest lease once this client is closed. Longer than `max_hold` or than a fixed lease
            /// is [`Invalid`](crate::Error::Invalid).
            pub fn at_least(self, time: std::time::Duration) -> Self {
                crate::lock::options::Configure::set(self, |options| options.terms.at_least = Some(time))
            }

            /// Sets what people see of the holder. The default is [`Settings::label`](crate::Settings::label).
            pub fn label(self, label: impl Into<std::sync::Arc<str>>) -> Self {
                crate::lock::options::Configure::set(self, |options| options.label = label.into())
            }

            /// Takes the lock on behalf of an owner, who may take it again while it has it.
            ///
            /// Taken again, it is the first claim once more: the lease, `max_hold`, `at_least` and label of the first
            /// count, and those of this one are ignored; see [`Owner`](crate::Owner).
            #[doc(alias = "reentrant")]
            pub fn owned_by(self, owner: &crate::Owner) -> Self {
                crate::lock::options::Configure::set(self, |options| options.owner = Some(owner.clone()))
            }
        }
    };
}
pub(crate) use options;
