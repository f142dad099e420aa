//! What the store promises.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{
    Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness, Order, Profile, Reach, ServerDeath,
    TokenRange, WakeUp,
};

use crate::config::Config;

/// The shortest lease that etcd grants with its default settings.
const MIN_LEASE: Duration = Duration::from_secs(2);

/// A year. etcd grants longer leases, but no work lasts that long.
const MAX_LEASE: Duration = Duration::from_secs(365 * 24 * 3600);

/// How late a lease may end. etcd looks for ended leases every 500 ms, and a busy one takes longer.
pub(super) const EXPIRY_SLACK: Duration = Duration::from_secs(1);

/// Number of tokens between two create revisions: the tokens of a claim are its create revision times this, and those that
/// follow.
const MAX_GRANTS: NonZeroU32 = NonZeroU32::new(1_024).unwrap();

const MAX_BATCH: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

const HAZARDS: &[Hazard] = &[Hazard::DataLoss];

/// The tokens of a claim whose key was created at this revision.
pub(super) fn tokens(created: i64, grants: u32) -> Option<TokenRange> {
    let first = u64::try_from(created)
        .ok()?
        .checked_mul(MAX_GRANTS.get().into())?;
    TokenRange::new(first.try_into().ok()?, grants.try_into().ok()?)
}

/// The promises of a store with these settings.
pub(super) fn profile(config: &Config) -> Profile {
    let mut limits = Limits::new(MIN_LEASE, MAX_LEASE);
    limits.max_grants = match config.etcdctl_fencing {
        true => NonZeroU32::MIN,
        false => MAX_GRANTS,
    };
    limits.max_batch = MAX_BATCH;
    limits.expiry_slack = EXPIRY_SLACK;
    let liveness = Liveness::Lease(LeaseClock::ServerMonotonic);
    let mut profile = Profile::new("etcd", "concurrency", liveness, HAZARDS, limits);
    profile.reach = Reach::Network;
    profile.mutex = Order::FifoForBoth;
    profile.read_write = Order::FifoForBoth;
    profile.semaphore = Order::FifoForBoth;
    profile.server_death = match config.hosts.len() {
        1 => ServerDeath::Outage,
        _ => ServerDeath::Tolerated,
    };
    profile.fencing = Fencing::Durable;
    profile.wake_up = WakeUp::Reliable;
    profile.remembers_ended = true;
    profile.inspection = Inspection::ALL;
    profile.inspection.remaining = false;
    profile
}
