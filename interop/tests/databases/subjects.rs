//! The layouts of lock tables that Tenure shares with other programs, each with such a program.

use std::time::Duration;

use tenure_interop::Driver;

use crate::server;
use crate::shared::subject::{Kind, Renewal, Subject};

const SHEDLOCK: Subject = Subject {
    name: "",
    drivers: &[Driver::ShedLock],
    server: "postgres::",
    kind: "server-time",
    store: server::postgres,
    options: "?layout=shedlock",
    key: "k",
    ours: Kind::Mutex,
    // Their programs try again after 20 ms, and are slower on a busy machine.
    they_wake: Duration::from_millis(300),
    // The longest pause between two polls of Tenure.
    we_wake: Duration::from_millis(250),
    renewal: Renewal::ByHand,
    is_reentrant: false,
    held: &["name=k lock_until=lease locked_at=now locked_by=ID"],
    held_by_us: None,
    read: &[],
    left: &["name=k lock_until=now locked_at=now locked_by=ID"],
};

const UNIQUE: Subject = Subject {
    drivers: &[Driver::Psycopg],
    kind: "unique",
    options: "?layout=unique",
    held: &["lock_key=k lock_value=ID expire_time=lease create_time=now"],
    left: &[],
    ..SHEDLOCK
};

const VERSION: Subject = Subject {
    drivers: &[Driver::Psycopg],
    kind: "version",
    options: "?layout=version",
    renewal: Renewal::NoLease,
    held: &["resource_key=k version=N locked=yes lock_holder=ID update_time=now expire_time=null"],
    held_by_us: Some(&[
        "resource_key=k version=N locked=yes lock_holder=ID update_time=now expire_time=lease",
    ]),
    left: &["resource_key=k version=N locked=no lock_holder=null update_time=now expire_time=null"],
    ..SHEDLOCK
};

/// Every layout and program, in the order of the table.
pub(crate) const SUBJECTS: [Subject; 9] = [
    Subject {
        name: "ShedLock with `usingDbTime`, PostgreSQL",
        ..SHEDLOCK
    },
    Subject {
        name: "ShedLock with the JVM's time and zone, PostgreSQL",
        kind: "client-time",
        options: "?layout=shedlock&time_zone=%2B05:30",
        ..SHEDLOCK
    },
    Subject {
        name: "ShedLock with `usingDbTime`, MariaDB",
        server: "mariadb::",
        store: server::mariadb,
        ..SHEDLOCK
    },
    Subject {
        name: "ShedLock with the JVM's time and zone, MariaDB",
        server: "mariadb::",
        kind: "client-time",
        store: server::mariadb,
        options: "?layout=shedlock&time_zone=%2B05:30",
        ..SHEDLOCK
    },
    Subject {
        name: "ShedLock with `forceUtcTimeZone`, MariaDB",
        server: "mariadb::",
        kind: "client-time-utc",
        store: server::mariadb,
        ..SHEDLOCK
    },
    Subject {
        name: "plain SQL, `unique`, PostgreSQL",
        ..UNIQUE
    },
    Subject {
        name: "plain SQL, `unique`, MariaDB",
        drivers: &[Driver::PyMySql],
        options: "?layout=unique&time_zone=%2B02:00",
        server: "mariadb::",
        store: server::mariadb,
        ..UNIQUE
    },
    Subject {
        name: "plain SQL, `version`, PostgreSQL",
        ..VERSION
    },
    Subject {
        name: "plain SQL, `version`, MariaDB",
        drivers: &[Driver::PyMySql],
        options: "?layout=version&time_zone=%2B02:00",
        server: "mariadb::",
        store: server::mariadb,
        ..VERSION
    },
];
