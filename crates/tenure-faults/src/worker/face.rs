//! A lock of any kind, asked for in one way.

use std::time::Duration;

use tenure::{Acquire, Client, Guard, Mode, Mutex, Owner, RwLock, Semaphore};

use super::args::Plant;
use super::wish::Wish;

/// A lock with its options.
#[derive(Clone, Debug)]
pub(crate) enum Face {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
}

impl Face {
    /// The lock that a task wants.
    pub(crate) fn new(client: &Client, owner: &Owner, wish: &Wish, plant: Option<Plant>) -> Face {
        let lease = match plant {
            Some(Plant::Linger) => Duration::from_secs(60),
            _ => wish.lease,
        };
        let is_fair = wish.key.fair && plant != Some(Plant::Barge);
        // All kinds have the same options, and no trait says so.
        macro_rules! with_options {
            ($face:expr) => {{
                let face = match wish.renewed {
                    true => $face.lease(lease),
                    false => $face.fixed_lease(lease),
                };
                let face = if is_fair { face.fair() } else { face };
                if wish.nests {
                    face.owned_by(owner)
                } else {
                    face
                }
            }};
        }
        let key = wish.key.name;
        match wish.mode {
            Mode::Exclusive => Face::Mutex(with_options!(client.mutex(key))),
            Mode::Read => Face::Read(with_options!(client.rwlock(key))),
            Mode::Write => Face::Write(with_options!(client.rwlock(key))),
            Mode::Permits { take, of } => {
                Face::Permits(with_options!(client.semaphore(key, of.get())), take.get())
            }
        }
    }

    pub(crate) fn lock(&self, limit: Option<Duration>) -> Acquire<Guard> {
        match (self, limit) {
            (Face::Mutex(mutex), None) => mutex.lock(),
            (Face::Mutex(mutex), Some(limit)) => mutex.lock_within(limit),
            (Face::Read(lock), None) => lock.read(),
            (Face::Read(lock), Some(limit)) => lock.read_within(limit),
            (Face::Write(lock), None) => lock.write(),
            (Face::Write(lock), Some(limit)) => lock.write_within(limit),
            (Face::Permits(semaphore, take), None) => semaphore.acquire_many(*take),
            (Face::Permits(semaphore, take), Some(limit)) => semaphore.acquire_many_within(*take, limit),
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
