//! A test's requests to another project's client: to its connections, to owners of locks, and to locks. The client
//! runs in a driver, a small program. All drivers speak one line protocol: each request is a line of words on stdin,
//! and each answer is a line of JSON on stdout, as soon as the request is done. A request that waits for a lock does
//! not delay those of other owners. A driver ends at the end of its input, and releases no lock.
//!
//! ```text
//! 1 open peer-0 redis://127.0.0.1:6379 30000      {"id":1,"value":"the client's name in the store"}
//! 2 acquire peer-0 anna plain k 0                 {"id":2,"value":null}
//! 3 release peer-0 berta plain k                  {"id":3,"error":"IllegalMonitorStateException","message":"..."}
//! 4 close peer-0                                  {"id":4,"value":null}
//! ```
//!
//! Every request except `open` and `close` names a client, an owner, a kind of lock, a key, and what its verb needs:
//! `acquire`, `try`, `release`, `count` (increments a number under the lock), and verbs that only some drivers know. To let a driver die, a test kills its process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::worker::{Reply, Thrown, Worker};

/// A connected client of another project.
#[derive(Debug)]
pub struct Peer {
    worker: Worker,
    name: String,
    id: String,
}

/// An owner of locks: a thread, where locks belong to threads. It handles one request at a time.
#[derive(Clone, Debug)]
pub struct Owner {
    worker: Worker,
    peer: String,
    id: String,
    name: String,
}

/// A lock, used by one owner. Each method sends its request at once.
#[derive(Clone, Debug)]
pub struct Lock {
    owner: Owner,
    kind: &'static str,
    key: String,
}

impl Peer {
    /// Connects a client that acquires locks for that lease: Redisson's `lockWatchdogTimeout`.
    ///
    /// # Errors
    /// The error of the client.
    pub async fn open(worker: &Worker, url: &str, lease: Duration) -> Result<Peer, Thrown> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let name = format!("peer-{}", OPENED.fetch_add(1, Ordering::Relaxed));
        let id = worker.ask(&["open", &name, url, &millis(lease)]).await?;
        Ok(Peer {
            worker: worker.clone(),
            name,
            id,
        })
    }

    /// The process of the client.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// The owner with this name. It begins with its first request.
    pub fn owner(&self, name: &str) -> Owner {
        Owner {
            worker: self.worker.clone(),
            peer: self.name.clone(),
            id: self.id.clone(),
            name: name.to_owned(),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.worker.ask::<()>(&["close", &self.name]));
    }
}

impl Owner {
    /// The name under which Redisson stores this thread as a holder: `uuid:thread`.
    ///
    /// # Errors
    /// The error of the client.
    pub async fn id(&self) -> Result<String, Thrown> {
        let thread: i64 = self.plain("-").ask("thread", &[]).await?;
        Ok(format!("{}:{thread}", self.id))
    }

    /// Redisson's `getLock(key)`.
    pub fn plain(&self, key: &str) -> Lock {
        self.lock("plain", key)
    }

    /// Redisson's `getFairLock(key)`.
    pub fn fair(&self, key: &str) -> Lock {
        self.lock("fair", key)
    }

    /// A lock of the given kind. Each driver's source lists the kinds that it knows.
    pub fn lock(&self, kind: &'static str, key: &str) -> Lock {
        Lock {
            owner: self.clone(),
            kind,
            key: key.to_owned(),
        }
    }
}

impl Lock {
    /// Waits for the lock, as Redisson's `lockInterruptibly()`. A client with a watchdog then renews the lock.
    pub fn lock(&self) -> Reply<()> {
        self.ask("acquire", &["0"])
    }

    /// Redisson's `lockInterruptibly(lease)`: waits for the lock, which is not renewed.
    pub fn lock_for(&self, lease: Duration) -> Reply<()> {
        self.ask("acquire", &[&millis(lease)])
    }

    /// `lockAsync(thread)`, for an owner whose name is a number. Waiting then occupies no Java thread.
    pub fn lock_async(&self) -> Reply<()> {
        self.ask("acquire-async", &["-1"])
    }

    /// `unlockAsync(thread)`, of an owner whose name is a number.
    pub fn unlock_async(&self) -> Reply<()> {
        self.ask("release-async", &[])
    }

    /// Acquires the lock if it is free: `tryLock()`.
    pub fn try_lock(&self) -> Reply<bool> {
        self.ask("try", &[])
    }

    /// Acquires the lock if it is free, and keeps it for at least this time: ShedLock's `lockAtLeastFor`.
    pub fn try_at_least(&self, time: Duration) -> Reply<bool> {
        self.ask("try-at-least", &[&millis(time)])
    }

    /// Waits for the lock for a limited time: `tryLock(wait)`.
    pub fn try_within(&self, wait: Duration) -> Reply<bool> {
        self.ask("acquire-within", &[&millis(wait)])
    }

    /// Releases the lock once: `unlock()`.
    pub fn unlock(&self) -> Reply<()> {
        self.ask("release", &[])
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

    /// Starts the lease again, in a client without a watchdog.
    pub fn extend(&self) -> Reply<bool> {
        self.ask("extend", &[])
    }

    /// The number of permits that a semaphore of Redisson has free.
    pub fn free(&self) -> Reply<i64> {
        self.ask("free", &[])
    }

    /// The token of the last grant of a fenced lock of Redisson, or of a row's version.
    pub fn token(&self) -> Reply<u64> {
        self.ask("token", &[])
    }

    /// The number of times that the owner holds the lock, as the client reports it: `getHoldCount()`.
    pub fn holds(&self) -> Reply<i64> {
        self.ask("state", &[])
    }

    /// `remainTimeToLive()`, in milliseconds.
    pub fn remaining(&self) -> Reply<i64> {
        self.ask("remaining", &[])
    }

    /// Repeats `turns` times: locks, reads the number `counter`, writes it plus 1, unlocks. Returns the longest wait in
    /// milliseconds. Without mutual exclusion, increments are lost. `counter` is a string in Redis, a table with the
    /// column `value` in a database, or a file.
    pub fn count(&self, counter: &str, turns: u32) -> Reply<u64> {
        self.ask("count", &[counter, &turns.to_string()])
    }

    /// The value of an election's leader: `Observe`.
    pub fn observe(&self) -> Reply<String> {
        self.ask("observe", &[])
    }

    /// Changes the value of an election's leader, who is this owner: `Proclaim`.
    pub fn proclaim(&self, value: &str) -> Reply<()> {
        self.ask("proclaim", &[value])
    }

    /// Increments the number `counter` by reading and then writing it, without the lock.
    pub fn raise(&self, counter: &str) -> Reply<()> {
        self.ask("raise", &[counter])
    }

    fn ask<T: DeserializeOwned>(&self, verb: &str, rest: &[&str]) -> Reply<T> {
        let owner = &self.owner;
        let words = [verb, &owner.peer, &owner.name, self.kind, &self.key];
        owner.worker.ask(&[&words[..], rest].concat())
    }
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}
