//! What can be asked of Redisson: its clients, the threads that own its locks, and the locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::jvm::{Jvm, Reply, Thrown};

/// One client of Redisson: all its threads share a connection, a watchdog and the first part of their names.
#[derive(Debug)]
pub struct Fleet {
    jvm: Jvm,
    name: String,
    id: String,
}

/// A thread of Java that owns the locks it takes, and does one thing after the other.
#[derive(Clone, Debug)]
pub struct Owner {
    jvm: Jvm,
    fleet: String,
    fleet_id: String,
    name: String,
}

/// A lock of Redisson in the hands of one owner. Each request is sent when its method is called.
#[derive(Clone, Debug)]
pub struct Lock {
    owner: Owner,
    kind: &'static str,
    key: String,
}

impl Fleet {
    /// Connects. `watchdog` is Redisson's `lockWatchdogTimeout`: the lease, renewed at a third.
    ///
    /// # Errors
    /// What Redisson throws.
    pub async fn open(jvm: &Jvm, url: &str, watchdog: Duration) -> Result<Fleet, Thrown> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let name = format!("fleet-{}", OPENED.fetch_add(1, Ordering::Relaxed));
        let id = jvm.ask(&["open", &name, url, &millis(watchdog)]).await?;
        Ok(Fleet {
            jvm: jvm.clone(),
            name,
            id,
        })
    }

    /// The process it is in.
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// The thread of that name, which is started when it is first needed.
    pub fn owner(&self, name: &str) -> Owner {
        Owner {
            jvm: self.jvm.clone(),
            fleet: self.name.clone(),
            fleet_id: self.id.clone(),
            name: name.to_owned(),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        drop(self.jvm.ask::<()>(&["close", &self.name]));
    }
}

impl Owner {
    /// What Redisson calls it in the store: `uuid:thread`.
    ///
    /// # Errors
    /// What Java throws.
    pub async fn id(&self) -> Result<String, Thrown> {
        let thread: i64 = self.plain("-").ask("thread", &[]).await?;
        Ok(format!("{}:{thread}", self.fleet_id))
    }

    /// `getLock(key)`.
    pub fn plain(&self, key: &str) -> Lock {
        self.lock("plain", key)
    }

    /// `getFairLock(key)`.
    pub fn fair(&self, key: &str) -> Lock {
        self.lock("fair", key)
    }

    fn lock(&self, kind: &'static str, key: &str) -> Lock {
        Lock {
            owner: self.clone(),
            kind,
            key: key.to_owned(),
        }
    }
}

impl Lock {
    /// `lockInterruptibly()`: waits, and is renewed by the watchdog.
    pub fn lock(&self) -> Reply<()> {
        self.ask("lock", &["0"])
    }

    /// `lockInterruptibly(lease)`: waits, and is not renewed.
    pub fn lock_for(&self, lease: Duration) -> Reply<()> {
        self.ask("lock", &[&millis(lease)])
    }

    /// `lockAsync(thread)`, of an owner whose name is a number: it is no thread, so many can wait.
    pub fn lock_async(&self) -> Reply<()> {
        self.ask("lock-async", &["-1"])
    }

    /// `unlockAsync(thread)`, of an owner whose name is a number.
    pub fn unlock_async(&self) -> Reply<()> {
        self.ask("unlock-async", &[])
    }

    /// `tryLock()`.
    pub fn try_lock(&self) -> Reply<bool> {
        self.ask("try", &[])
    }

    /// `tryLock(wait)`.
    pub fn try_within(&self, wait: Duration) -> Reply<bool> {
        self.ask("try-within", &[&millis(wait), "0"])
    }

    /// `unlock()`.
    pub fn unlock(&self) -> Reply<()> {
        self.ask("unlock", &[])
    }

    /// `forceUnlock()`.
    pub fn force_unlock(&self) -> Reply<bool> {
        self.ask("force", &[])
    }

    /// Interrupts the owner in what it waits for.
    pub fn interrupt(&self) -> Reply<()> {
        self.ask("interrupt", &[])
    }

    /// `isLocked()`.
    pub fn is_locked(&self) -> Reply<bool> {
        self.ask("is-locked", &[])
    }

    /// `isHeldByCurrentThread()`.
    pub fn is_held(&self) -> Reply<bool> {
        self.ask("is-held", &[])
    }

    /// `getHoldCount()`.
    pub fn holds(&self) -> Reply<i64> {
        self.ask("holds", &[])
    }

    /// `remainTimeToLive()`, in milliseconds.
    pub fn remaining(&self) -> Reply<i64> {
        self.ask("remaining", &[])
    }

    /// `turns` times: locks, reads the Redis string `counter`, writes it with 1 added, unlocks. Answers the longest wait in
    /// milliseconds. Without mutual exclusion turns are lost.
    pub fn count(&self, counter: &str, turns: u32) -> Reply<u64> {
        self.ask("count", &[counter, &turns.to_string()])
    }

    fn ask<T: DeserializeOwned>(&self, verb: &str, rest: &[&str]) -> Reply<T> {
        let owner = &self.owner;
        let words = [verb, &owner.fleet, &owner.name, self.kind, &self.key];
        owner.jvm.ask(&[&words[..], rest].concat())
    }
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}
