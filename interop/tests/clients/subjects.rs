//! The kinds of locks of other projects on Redis, each with its counterpart in Tenure.

use std::time::Duration;

use tenure_interop::Driver;

use crate::redis;
use crate::shared::subject::{Kind, Renewal, Subject};

/// The time within which a wake-up takes effect.
const WOKEN: Duration = Duration::from_millis(200);

const REDISSON: Subject = Subject {
    name: "",
    drivers: &Driver::REDISSON,
    server: "",
    kind: "",
    store: redis::start,
    options: "",
    key: "k",
    ours: Kind::Mutex,
    they_wake: WOKEN,
    we_wake: WOKEN,
    renewal: Renewal::Watchdog,
    is_reentrant: true,
    held: &["k hash ID=1"],
    held_by_us: None,
    read: &[],
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
        read: &["k hash ID=1 mode=read", "{k}:ID:rwlock_timeout:1 string 1"],
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
