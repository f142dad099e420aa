//! The requests to Redisson in its Java process: to clients, to the threads that own locks, and to locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::jvm::{Jvm, Reply, Thrown};

/// A Redisson client. All its threads share connections, a watchdog, and the UUID in their owner names.
#[derive(Debug)]
pub struct Fleet {
    jvm: Jvm,
    name: String,
    id: String,
}

/// A Java thread that owns the locks that it acquires. It handles one request at a time.
#[derive(Clone, Debug)]
pub struct Owner {
    jvm: Jvm,
    fleet: String,
    fleet_id: String,
    name: String,
}

/// A Redisson lock, used by one owner. Each method sends its request at once.
#[derive(Clone, Debug)]
pub struct Lock {
    owner: Owner,
    kind: &'static str,
    key: String,
}

impl Fleet {
    /// Connects a client. `watchdog` is Redisson's `lockWatchdogTimeout`: the lease, which is renewed every third of it.
    ///
    /// # Errors
    /// The exception that Redisson throws.
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

    /// The Java process of the client.
    pub fn jvm(&self) -> &Jvm {
        &self.jvm
    }

    /// The Java thread with this name. It is started by its first request.
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
    /// The owner's name in the store: `uuid:thread`.
    ///
    /// # Errors
    /// The exception that Java throws.
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
    /// `lockInterruptibly()`: waits for the lock, which the watchdog then renews.
    pub fn lock(&self) -> Reply<()> {
        self.ask("lock", &["0"])
    }

    /// `lockInterruptibly(lease)`: waits for the lock, which is not renewed.
    pub fn lock_for(&self, lease: Duration) -> Reply<()> {
        self.ask("lock", &[&millis(lease)])
    }

    /// `lockAsync(thread)`, for an owner whose name is a number. Waiting then occupies no Java thread.
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

    /// Interrupts the thread of the owner.
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

    /// Repeats `turns` times: locks, reads the Redis string `counter`, writes it plus 1, unlocks. Returns the longest wait in
    /// milliseconds. Without mutual exclusion, increments are lost.
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
