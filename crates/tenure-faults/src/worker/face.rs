//! A lock of any kind, asked for in one way.

use std::time::Duration;

use tenure::{Acquire, Client, Guard, Mode, Mutex, Owner, RwLock, Semaphore};

/// A lock with its options.
#[derive(Clone, Debug)]
pub(crate) enum Face {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
}

/// What is asked for beside the mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    pub(crate) lease: Duration,
    pub(crate) renewed: bool,
    pub(crate) fair: bool,
    pub(crate) owner: Option<&'a Owner>,
}

/// All kinds have the same options, and no trait says so.
macro_rules! with_options {
    ($face:expr, $options:expr) => {{
        let Options {
            lease,
            renewed,
            fair,
            owner,
        } = $options;
        let face = $face;
        let face = if renewed {
            face.lease(lease)
        } else {
            face.fixed_lease(lease)
        };
        let face = if fair { face.fair() } else { face };
        match owner {
            Some(owner) => face.owned_by(owner),
            None => face,
        }
    }};
}

impl Face {
    pub(crate) fn new(client: &Client, key: &str, mode: Mode, options: Options<'_>) -> Face {
        match mode {
            Mode::Exclusive => Face::Mutex(with_options!(client.mutex(key), options)),
            Mode::Read => Face::Read(with_options!(client.rwlock(key), options)),
            Mode::Write => Face::Write(with_options!(client.rwlock(key), options)),
            Mode::Permits { take, of } => {
                let semaphore = with_options!(client.semaphore(key, of.get()), options);
                Face::Permits(semaphore, take.get())
            }
        }
    }

    pub(crate) fn lock(&self) -> Acquire<Guard> {
        match self {
            Face::Mutex(mutex) => mutex.lock(),
            Face::Read(lock) => lock.read(),
            Face::Write(lock) => lock.write(),
            Face::Permits(semaphore, take) => semaphore.acquire_many(*take),
        }
    }

    pub(crate) fn lock_within(&self, limit: Duration) -> Acquire<Guard> {
        match self {
            Face::Mutex(mutex) => mutex.lock_within(limit),
            Face::Read(lock) => lock.read_within(limit),
            Face::Write(lock) => lock.write_within(limit),
            Face::Permits(semaphore, take) => semaphore.acquire_many_within(*take, limit),
        }
    }

    pub(crate) fn try_lock(&self) -> Acquire<Option<Guard>> {
        match self {
            Face::Mutex(mutex) => mutex.try_lock(),
            Face::Read(lock) => lock.try_read(),
            Face::Write(lock) => lock.try_write(),
            Face::Permits(semaphore, take) => semaphore.try_acquire_many(*take),
        }
    }
}
