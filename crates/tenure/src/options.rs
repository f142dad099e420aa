//! The options that mutexes, read-write locks and semaphores share.

use std::num::NonZeroU32;
use std::sync::Arc;

use tenure_backend::{Fairness, Kind, LockKey, Mode};

use crate::engine::Engine;
use crate::error::Error;
use crate::line::Line;
use crate::want::Want;

/// What every face is made of: where to go, and what to ask for.
#[derive(Clone, Debug)]
pub(crate) struct Face {
    pub(crate) line: Result<Arc<Line>, Error>,
    pub(crate) want: Arc<Want>,
}

impl Face {
    /// A face on that key; what is wrong with it is told at first use.
    pub(crate) fn new(engine: &Arc<Engine>, key: &str, mode: Mode) -> Self {
        let line = LockKey::new(key)
            .map_err(Error::from)
            .map(|key| engine.lines.get(engine, key, mode.kind()));
        Face {
            line,
            want: Arc::new(Want::new(&engine.settings, mode)),
        }
    }

    /// A semaphore's face: `of` permits of which claims take some.
    pub(crate) fn semaphore(engine: &Arc<Engine>, key: &str, of: u32) -> Self {
        match NonZeroU32::new(of) {
            Some(of) => Self::new(
                engine,
                key,
                Mode::Permits {
                    take: NonZeroU32::MIN,
                    of,
                },
            ),
            None => {
                let one = NonZeroU32::MIN;
                let want = Want::new(&engine.settings, Mode::Permits { take: one, of: one });
                let error =
                    Error::Invalid("a semaphore has at least one permit: it was asked for with none".into());
                Face {
                    line: Err(error),
                    want: Arc::new(want),
                }
            }
        }
    }

    /// The same face in another mode of the same kind.
    pub(crate) fn with_mode(&self, mode: Mode) -> Self {
        let mut face = self.clone();
        Arc::make_mut(&mut face.want).mode = mode;
        face
    }

    /// The same semaphore, taking that many permits.
    pub(crate) fn taking(&self, permits: u32) -> Self {
        match (NonZeroU32::new(permits), self.want.mode.kind()) {
            (Some(take), Kind::Semaphore { of }) => self.with_mode(Mode::Permits { take, of }),
            _ => Face {
                line: Err(Error::Invalid(
                    "at least one permit is taken: none were asked for".into(),
                )),
                want: self.want.clone(),
            },
        }
    }

    pub(crate) fn set(mut self, change: impl FnOnce(&mut Want)) -> Self {
        change(Arc::make_mut(&mut self.want));
        self
    }
}

impl Want {
    fn new(settings: &crate::Settings, mode: Mode) -> Self {
        Want {
            mode,
            fairness: Fairness::Unfair,
            lease: settings.lease,
            renewed: true,
            max_hold: None,
            at_least: None,
            label: settings.label.clone(),
            owner: None,
            member: false,
        }
    }
}

/// The options as methods of a face: one definition, so that they read the same everywhere.
macro_rules! options {
    ($face:ident) => {
        impl $face {
            /// Serves waiters first come, first served, across all clients of the store.
            #[must_use]
            pub fn fair(self) -> Self {
                Self(
                    self.0
                        .set(|want| want.fairness = tenure_backend::Fairness::Fifo),
                )
            }

            /// Sets the lease: how long the store keeps the lock if this client dies. Renewed at a third of it.
            ///
            /// The default is [`Settings::lease`](crate::Settings::lease), 30 s. At least 30 ms.
            #[must_use]
            pub fn lease(self, lease: std::time::Duration) -> Self {
                Self(self.0.set(|want| {
                    want.lease = lease;
                    want.renewed = true;
                }))
            }

            /// Sets a lease that is never renewed: belief ends with it, whatever the holder does.
            #[must_use]
            pub fn fixed_lease(self, lease: std::time::Duration) -> Self {
                Self(self.0.set(|want| {
                    want.lease = lease;
                    want.renewed = false;
                }))
            }

            /// Ends the hold after that time: the lock is then lost, and the watchdog gives it back.
            #[must_use]
            pub fn max_hold(self, time: std::time::Duration) -> Self {
                Self(self.0.set(|want| want.max_hold = Some(time)))
            }

            /// Keeps the lock for at least that time, even if its guard goes earlier: for jobs on hosts with skewed
            /// clocks, that must not run again at once.
            #[must_use]
            pub fn at_least(self, time: std::time::Duration) -> Self {
                Self(self.0.set(|want| want.at_least = Some(time)))
            }

            /// Sets what people see of the holder. The default is [`Settings::label`](crate::Settings::label).
            #[must_use]
            pub fn label(self, label: impl Into<std::sync::Arc<str>>) -> Self {
                Self(self.0.set(|want| want.label = label.into()))
            }

            /// Takes the lock on behalf of an owner, who may take it again while it has it.
            #[must_use]
            pub fn owned_by(self, owner: &crate::Owner) -> Self {
                Self(self.0.set(|want| want.owner = Some(owner.clone())))
            }
        }
    };
}
pub(crate) use options;
