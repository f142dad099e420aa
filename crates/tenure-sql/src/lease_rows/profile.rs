//! What the layouts promise.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{
    Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness, Order, Profile, Reach, ServerDeath,
};

use super::layout::Layout;
use crate::server::config::{Config, Database};

/// A year. The columns could hold later times, but no work lasts that long.
const MAX_LEASE: Duration = Duration::from_secs(365 * 24 * 3600);

const HAZARDS: &[Hazard] = &[Hazard::DataLoss, Hazard::ClockSet, Hazard::Failover];

/// The promises of a store with these settings.
pub(crate) fn profile(config: &Config) -> Profile {
    let mut limits = Limits::new(Duration::from_millis(1), MAX_LEASE);
    limits.max_batch = NonZeroU32::new(100).unwrap_or(NonZeroU32::MIN);
    if config.layout == Layout::ShedLock {
        // Its times have milliseconds. They are rounded up, by some settings of MySQL twice.
        limits.expiry_slack = match config.database {
            Database::Postgres => Duration::from_millis(1),
            Database::MySql => Duration::from_millis(2),
        };
    }
    let store = config.database.names().scheme;
    let liveness = Liveness::Lease(LeaseClock::ServerWall);
    let mut profile = Profile::new(store, config.layout.form().name, liveness, HAZARDS, limits);
    profile.reach = Reach::Network;
    profile.mutex = Order::Unfair;
    profile.server_death = match config.places.len() {
        0 | 1 => ServerDeath::Outage,
        _ => ServerDeath::OutageUntilFailover,
    };
    if config.layout.has_tokens() {
        profile.fencing = Fencing::Durable;
        profile.raises_tokens = true;
        profile.limits.max_grants = NonZeroU32::new(1024).unwrap_or(NonZeroU32::MIN);
    }
    profile.inspection = Inspection::ALL;
    profile.inspection.queue = false;
    profile
}
