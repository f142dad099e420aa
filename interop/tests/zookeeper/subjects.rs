//! The kinds of locks of other clients of ZooKeeper, each with its counterpart in Tenure.

use std::time::Duration;

use tenure_interop::Driver;

use crate::server;
use crate::shared::subject::{Kind, Renewal, Subject};

/// The time within which a wake-up takes effect.
const WOKEN: Duration = Duration::from_millis(200);

const CURATOR: Subject = Subject {
    name: "Curator's `InterProcessMutex`",
    drivers: &[Driver::Curator],
    server: "",
    kind: "mutex",
    store: server::node,
    options: "?tick_time=500ms",
    key: "k",
    ours: Kind::Mutex,
    they_wake: WOKEN,
    we_wake: WOKEN,
    renewal: Renewal::Watchdog,
    is_reentrant: true,
    held: &["k/_c_UUID-lock-N"],
    held_by_us: None,
    read: &[],
    left: &[],
};

const PERMITS: Subject = Subject {
    ours: Kind::Permit,
    is_reentrant: false,
    held: &["k/leases/_c_UUID-lease-N"],
    ..CURATOR
};

const KAZOO: Subject = Subject {
    name: "kazoo's `Lock`",
    drivers: &[Driver::Kazoo],
    kind: "lock",
    options: "?tick_time=500ms&layout=kazoo",
    is_reentrant: false,
    held: &["k/HEX__lock__N"],
    ..CURATOR
};

/// Every kind, in the order of the table.
pub(crate) const SUBJECTS: [Subject; 8] = [
    CURATOR,
    Subject {
        name: "`InterProcessReadWriteLock`",
        kind: "write",
        ours: Kind::Write,
        held: &["k/_c_UUID-__WRIT__N"],
        read: &["k/_c_UUID-__READ__N"],
        ..CURATOR
    },
    Subject {
        name: "`InterProcessSemaphoreV2`",
        kind: "permits:1",
        ..PERMITS
    },
    Subject {
        name: "`InterProcessSemaphoreMutex`",
        kind: "semaphore-mutex",
        ..PERMITS
    },
    Subject {
        name: "`InterProcessMultiLock`",
        kind: "multi",
        key: "a,b",
        ours: Kind::Multi,
        held: &["a/_c_UUID-lock-N", "b/_c_UUID-lock-N"],
        ..CURATOR
    },
    KAZOO,
    Subject {
        name: "kazoo's `ReadLock`, `WriteLock`",
        kind: "write",
        ours: Kind::Write,
        read: &["k/HEX__rlock__N"],
        ..KAZOO
    },
    Subject {
        name: "a single ephemeral node",
        kind: "node",
        options: "?tick_time=500ms&layout=ephemeral",
        held: &["k"],
        ..KAZOO
    },
];
