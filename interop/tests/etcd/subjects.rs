//! The kinds of locks of other clients of etcd, each with its counterpart in Tenure.

use std::time::Duration;

use tenure_interop::Driver;

use crate::server;
use crate::shared::subject::{Kind, Renewal, Subject};

/// The time within which a wake-up takes effect. Go's clients open their watches in a way that etcd serves every 100 ms.
const WOKEN: Duration = Duration::from_millis(200);

const ETCDCTL: Subject = Subject {
    name: "`etcdctl lock NAME`",
    drivers: &[Driver::Etcdctl],
    server: "",
    kind: "etcdctl",
    store: server::prefix,
    options: "",
    key: "k",
    ours: Kind::Mutex,
    they_wake: WOKEN,
    we_wake: WOKEN,
    renewal: Renewal::Watchdog,
    is_reentrant: false,
    held: &["k/LEASE"],
    held_by_us: Some(&["k/LEASE tenure1"]),
    read: &[],
    left: &[],
};

/// Every kind, in the order of the table.
pub(crate) const SUBJECTS: [Subject; 4] = [
    ETCDCTL,
    Subject {
        name: "`etcdctl lock NAME -- COMMAND`",
        kind: "etcdctl-command",
        ..ETCDCTL
    },
    Subject {
        name: "Go's `concurrency.Mutex`",
        drivers: &[Driver::GoEtcd],
        kind: "mutex",
        ..ETCDCTL
    },
    Subject {
        name: "Go's `concurrency.Election`",
        drivers: &[Driver::GoEtcd],
        kind: "election",
        ours: Kind::Leader,
        held: &["k/LEASE candidate"],
        held_by_us: Some(&["k/LEASE:RECORD candidate"]),
        ..ETCDCTL
    },
];
