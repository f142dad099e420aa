//! The kinds of locks of other projects, each with its counterpart in Tenure.

use std::time::Duration;

use tenure::{Client, Error, Guard, Lock, Multi, MultiGuard};
use tenure_interop::Driver;

/// A kind of lock of other projects, and the same kind of Tenure.
#[derive(Debug)]
pub(crate) struct Subject {
    /// The name in the documentation.
    pub(crate) name: &'static str,
    /// The clients that offer this kind of lock.
    pub(crate) drivers: &'static [Driver],
    /// The name in the drivers.
    pub(crate) kind: &'static str,
    /// The options of Tenure's URL.
    pub(crate) options: &'static str,
    /// The key of the tests.
    pub(crate) key: &'static str,
    /// Tenure's kind of lock.
    pub(crate) ours: Kind,
    /// The longest usual time between Tenure's unlock and the client's acquisition: by a wake-up, or by the client's
    /// polls.
    pub(crate) they_wake: Duration,
    /// The longest usual time between the client's unlock and Tenure's acquisition.
    pub(crate) we_wake: Duration,
    /// How the client renews what it holds.
    pub(crate) renewal: Renewal,
    /// Whether an owner of the client may hold the lock twice.
    pub(crate) is_reentrant: bool,
    /// The data in Redis while the client holds, with ids of owners as `ID`.
    pub(crate) held: &'static [&'static str],
    /// The data in Redis after an unlock.
    pub(crate) left: &'static [&'static str],
}

/// Tenure's kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Fair,
    Multi,
    /// The writers of a read-write lock.
    Write,
    /// The only permit of a semaphore.
    Permit,
}

/// How a client renews its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// The client renews by itself.
    Watchdog,
    /// The client renews only when its user calls a method.
    ByHand,
}

/// The time within which a wake-up takes effect.
const WOKEN: Duration = Duration::from_millis(200);

const REDISSON: Subject = Subject {
    name: "",
    drivers: &Driver::REDISSON,
    kind: "",
    options: "",
    key: "k",
    ours: Kind::Mutex,
    they_wake: WOKEN,
    we_wake: WOKEN,
    renewal: Renewal::Watchdog,
    is_reentrant: true,
    held: &["k hash ID=1"],
    left: &[],
};

const SPRING: Subject = Subject {
    name: "RedisLockRegistry, spinning",
    drivers: &[Driver::Spring],
    kind: "spin",
    options: "?layout=spring&registry=locks",
    held: &["locks:k string ID"],
    ..REDISSON
};

const PLAIN: Subject = Subject {
    options: "?layout=plain",
    renewal: Renewal::ByHand,
    is_reentrant: false,
    held: &["k string ID"],
    ..REDISSON
};

/// Every kind, in the order of the table.
pub(crate) const SUBJECTS: [Subject; 11] = [
    Subject {
        name: "RLock",
        kind: "plain",
        ..REDISSON
    },
    Subject {
        name: "RFairLock",
        kind: "fair",
        ours: Kind::Fair,
        ..REDISSON
    },
    Subject {
        name: "RMultiLock",
        kind: "multi",
        key: "a,b",
        ours: Kind::Multi,
        held: &["a hash ID=1", "b hash ID=1"],
        ..REDISSON
    },
    Subject {
        name: "RFencedLock",
        kind: "fenced",
        // The counter of Redisson's fencing tokens, which Tenure neither reads nor raises.
        held: &["k hash ID=1", "redisson_lock_token:{k} string 1, for ever"],
        left: &["redisson_lock_token:{k} string 1, for ever"],
        ..REDISSON
    },
    Subject {
        name: "RReadWriteLock",
        kind: "write",
        ours: Kind::Write,
        held: &["k hash ID:write=1 mode=write"],
        ..REDISSON
    },
    Subject {
        name: "RPermitExpirableSemaphore",
        kind: "permits:1",
        ours: Kind::Permit,
        renewal: Renewal::ByHand,
        is_reentrant: false,
        held: &["k string 0, for ever", "{k}:timeout zset with 1, for ever"],
        left: &["k string 1, for ever"],
        ..REDISSON
    },
    SPRING,
    Subject {
        name: "RedisLockRegistry, PUB_SUB_LOCK",
        kind: "pubsub",
        ..SPRING
    },
    Subject {
        name: "redis-py's Lock",
        drivers: &[Driver::RedisPy],
        kind: "redis-py",
        ..PLAIN
    },
    Subject {
        name: "redsync's Mutex",
        drivers: &[Driver::Redsync],
        kind: "redsync",
        they_wake: Duration::from_millis(250),
        ..PLAIN
    },
    Subject {
        name: "node-redlock",
        drivers: &[Driver::NodeRedlock],
        kind: "redlock",
        they_wake: Duration::from_millis(300),
        ..PLAIN
    },
];

/// A lock of Tenure of any kind.
#[derive(Clone, Debug)]
pub(crate) enum Ours {
    One(Lock),
    Several(Multi),
}

/// A guard of any kind.
#[derive(Debug)]
pub(crate) enum Held {
    One(Guard),
    Several(MultiGuard),
}

impl Subject {
    /// Tenure's lock on the subject's key.
    pub(crate) fn ours(&self, client: &Client) -> Ours {
        match self.ours {
            Kind::Mutex => Ours::One(client.mutex(self.key).into()),
            Kind::Fair => Ours::One(client.mutex(self.key).fair().into()),
            Kind::Write => Ours::One(client.rwlock(self.key).writer()),
            Kind::Permit => Ours::One(client.semaphore(self.key, 1).permits(1)),
            Kind::Multi => Ours::Several(tenure::multi(self.key.split(',').map(|key| client.mutex(key)))),
        }
    }
}

impl Ours {
    pub(crate) async fn lock(&self) -> Result<Held, Error> {
        match self {
            Ours::One(lock) => lock.lock().await.map(Held::One),
            Ours::Several(multi) => multi.lock().await.map(Held::Several),
        }
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Held>, Error> {
        match self {
            Ours::One(lock) => Ok(lock.try_lock().await?.map(Held::One)),
            Ours::Several(multi) => Ok(multi.try_lock().await?.map(Held::Several)),
        }
    }
}

impl Held {
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Held::One(guard) => guard.is_held(),
            Held::Several(guard) => guard.is_held(),
        }
    }

    pub(crate) async fn unlock(self) -> Result<(), Error> {
        match self {
            Held::One(guard) => guard.unlock().await,
            Held::Several(guard) => guard.unlock().await,
        }
    }
}
