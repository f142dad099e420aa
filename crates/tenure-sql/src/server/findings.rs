//! What `tenure doctor` finds on each kind of database.

use std::time::{Duration, SystemTime};

use tenure_backend::Finding;

use super::config::{Config, Database, Place, TlsMode};

/// The server's clock beside this machine's.
pub(crate) fn clock(server_us: i64) -> Option<Finding> {
    let here = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let there = Duration::from_micros(server_us.unsigned_abs());
    let difference = here.abs_diff(there).as_secs_f64();
    (difference > 1.0).then(|| {
        Finding::note(
            format!("the server's clock differs from this machine's by {difference:.1} s"),
            "leases end by the server's clock; if a server with this machine's clock took over, they would end early or late",
        )
    })
}

/// The connections of all clients beside the greatest number that the server allows.
pub(crate) fn connections(used: i64, most: i64) -> Option<Finding> {
    (used * 10 > most * 9).then(|| {
        Finding::warning(
            format!("{used} of {most} connections are in use"),
            "clients that need another one are refused",
        )
    })
}

/// A connection through a network that others may read.
pub(crate) fn encryption(config: &Config, is_encrypted: bool) -> Option<Finding> {
    let is_local = |name: &str| ["localhost", "127.0.0.1", "::1"].contains(&name);
    let is_remote = match &config.place {
        Place::Socket(..) => false,
        Place::Hosts(hosts) => !hosts.iter().all(|host| is_local(host.name())),
    };
    let (does_without, verifies) = match config.database {
        Database::Postgres => ("sslmode=prefer", "sslmode=verify-full"),
        Database::MySql => ("ssl-mode=preferred", "ssl-mode=verify_identity"),
    };
    (is_remote && !is_encrypted && config.tls == TlsMode::Prefer).then(|| {
        Finding::warning(
            format!("the connection is not encrypted: the server does not offer TLS, and `{does_without}` does without"),
            format!("anyone who reads the network sees the keys of the locks; add `{verifies}`"),
        )
    })
}
