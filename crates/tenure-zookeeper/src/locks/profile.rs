//! What the store promises.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{
    Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness, Order, Profile, Reach, ServerDeath,
    TokenRange, WakeUp,
};

use crate::config::{Config, Layout};

/// The shortest lease, in ticks: it bears two checks of its session without an answer.
const MIN_TICKS: u32 = 6;

/// How late a lease may end, in ticks: ZooKeeper ends sessions at full ticks only.
const LATE_TICKS: u32 = 2;

/// The longest lease: ZooKeeper counts sessions in milliseconds, up to 24 days.
const MAX_LEASE: Duration = Duration::from_secs(20 * 24 * 3600);

/// Number of tokens between two changes in ZooKeeper: the tokens of a claim are the number of the change that created its node
/// times this, and those that follow.
const MAX_GRANTS: NonZeroU32 = NonZeroU32::new(1_024).unwrap();

const MAX_BATCH: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

const HAZARDS: &[Hazard] = &[Hazard::DataLoss];

/// The tokens of a claim whose node was created by this change.
pub(super) fn tokens(czxid: i64, grants: u32) -> Option<TokenRange> {
    let first = u64::try_from(czxid).ok()?.checked_mul(MAX_GRANTS.get().into())?;
    TokenRange::new(first.try_into().ok()?, grants.try_into().ok()?)
}

/// The promises of a store with these settings.
pub(super) fn profile(config: &Config) -> Profile {
    let mut limits = Limits::new(config.tick_time * MIN_TICKS, MAX_LEASE);
    limits.max_grants = MAX_GRANTS;
    limits.max_batch = MAX_BATCH;
    limits.expiry_slack = config.tick_time * LATE_TICKS;
    let (layout, order) = match config.layout {
        Layout::Curator => ("curator", Order::FifoForBoth),
        Layout::Kazoo => ("kazoo", Order::FifoForBoth),
        Layout::Ephemeral => ("ephemeral", Order::Unfair),
    };
    let liveness = Liveness::Lease(LeaseClock::ServerMonotonic);
    let mut profile = Profile::new("zookeeper", layout, liveness, HAZARDS, limits);
    profile.reach = Reach::Network;
    profile.mutex = order;
    if config.layout != Layout::Ephemeral {
        profile.read_write = order;
    }
    match config.layout {
        Layout::Curator => profile.semaphore = order,
        _ => profile.fuller_layout = Some("curator"),
    }
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
