//! What the store promises.

use std::time::Duration;

use tenure_backend::{Limits, Order, Profile};

use crate::config::{Config, Layout};

/// The shortest lease, in ticks: it bears two checks of its session without an answer.
const MIN_TICKS: u32 = 6;

/// How late a lease may end, in ticks: ZooKeeper ends sessions at full ticks only.
const LATE_TICKS: u32 = 2;

/// The longest lease: ZooKeeper counts sessions in milliseconds, up to 24 days.
const MAX_LEASE: Duration = Duration::from_secs(20 * 24 * 3600);

/// The promises of a store with these settings.
pub(super) fn profile(config: &Config) -> Profile {
    let (layout, order) = match config.layout {
        Layout::Curator => ("curator", Order::FifoForBoth),
        Layout::Kazoo => ("kazoo", Order::FifoForBoth),
        Layout::Ephemeral => ("ephemeral", Order::Unfair),
    };
    let mut limits = Limits::new(config.tick_time * MIN_TICKS, MAX_LEASE);
    limits.expiry_slack = config.tick_time * LATE_TICKS;
    let mut profile = tenure_contenders::profile("zookeeper", layout, config.hosts.len(), limits);
    profile.mutex = order;
    if config.layout != Layout::Ephemeral {
        profile.read_write = order;
    }
    match config.layout {
        Layout::Curator => profile.semaphore = order,
        _ => profile.fuller_layout = Some("curator"),
    }
    profile
}
