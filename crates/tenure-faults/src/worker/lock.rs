//! One type for locks of all kinds.

use std::time::Duration;

use tenure::{Acquire, Client, Guard, Mode, Mutex, Owner, RwLock, Semaphore};

use super::args::PlantedBug;
use super::plan::LockPlan;

#[derive(Clone, Debug)]
pub(crate) enum AnyLock {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
}

impl AnyLock {
    pub(crate) fn new(client: &Client, owner: &Owner, plan: &LockPlan, plant: Option<PlantedBug>) -> AnyLock {
        let lease = match plant {
            Some(PlantedBug::LongLease) => Duration::from_secs(60),
            _ => plan.lease,
        };
        let is_fair = plan.key.fair && plant != Some(PlantedBug::SkipQueue);
        // A macro, because the lock types share these options but no trait.
        macro_rules! with_options {
            ($lock:expr) => {{
                let lock = match plan.renewed {
                    true => $lock.lease(lease),
                    false => $lock.fixed_lease(lease),
                };
                let lock = if is_fair { lock.fair() } else { lock };
                if plan.nests {
                    lock.owned_by(owner)
                } else {
                    lock
                }
            }};
        }
        let key = plan.key.name;
        match plan.mode {
            Mode::Exclusive => AnyLock::Mutex(with_options!(client.mutex(key))),
            Mode::Read => AnyLock::Read(with_options!(client.rwlock(key))),
            Mode::Write => AnyLock::Write(with_options!(client.rwlock(key))),
            Mode::Permits { take, of } => {
                AnyLock::Permits(with_options!(client.semaphore(key, of.get())), take.get())
            }
        }
    }

    pub(crate) fn lock(&self, limit: Option<Duration>) -> Acquire<Guard> {
        match (self, limit) {
            (AnyLock::Mutex(mutex), None) => mutex.lock(),
            (AnyLock::Mutex(mutex), Some(limit)) => mutex.lock_within(limit),
            (AnyLock::Read(lock), None) => lock.read(),
            (AnyLock::Read(lock), Some(limit)) => lock.read_within(limit),
            (AnyLock::Write(lock), None) => lock.write(),
            (AnyLock::Write(lock), Some(limit)) => lock.write_within(limit),
            (AnyLock::Permits(semaphore, take), None) => semaphore.acquire_many(*take),
            (AnyLock::Permits(semaphore, take), Some(limit)) => semaphore.acquire_many_within(*take, limit),
        }
    }

    pub(crate) fn try_lock(&self) -> Acquire<Option<Guard>> {
        match self {
            AnyLock::Mutex(mutex) => mutex.try_lock(),
            AnyLock::Read(lock) => lock.try_read(),
            AnyLock::Write(lock) => lock.try_write(),
            AnyLock::Permits(semaphore, take) => semaphore.try_acquire_many(*take),
        }
    }
}
