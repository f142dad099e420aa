//! What the store promises.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{Limits, Order, Profile};

use crate::config::Config;

/// The shortest lease that etcd grants with its default settings.
const MIN_LEASE: Duration = Duration::from_secs(2);

/// A year. etcd grants longer leases, but no work lasts that long.
const MAX_LEASE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How late a lease may end. etcd looks for ended leases every 500 ms, and a busy one takes longer.
const EXPIRY_SLACK: Duration = Duration::from_secs(1);

/// The promises of a store with these settings.
pub(super) fn profile(config: &Config) -> Profile {
    let mut limits = Limits::new(MIN_LEASE, MAX_LEASE);
    limits.expiry_slack = EXPIRY_SLACK;
    let mut profile = tenure_contenders::profile("etcd", "concurrency", config.hosts.len(), limits);
    if config.etcdctl_fencing {
        profile.limits.max_grants = NonZeroU32::MIN;
    }
    profile.mutex = Order::FifoForBoth;
    profile.read_write = Order::FifoForBoth;
    profile.semaphore = Order::FifoForBoth;
    profile
}
