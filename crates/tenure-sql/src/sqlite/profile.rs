//! The profile of the SQLite store: what it promises, and its limits.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{
    Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness, Order, Profile, Reach, WakeUp,
};

pub(super) const LIMITS: Limits = {
    let mut limits = Limits::new(Duration::from_millis(1), Duration::from_secs(365 * 24 * 3600));
    limits.max_grants = NonZeroU32::new(1024).unwrap();
    limits.max_batch = NonZeroU32::new(1024).unwrap();
    limits
};

pub(super) static SQLITE: Profile = {
    let liveness = Liveness::Lease(LeaseClock::Shared);
    let mut profile = Profile::new("sqlite", "claims", liveness, &[Hazard::DataLoss], LIMITS);
    profile.reach = Reach::Machine;
    profile.mutex = Order::Both;
    profile.read_write = Order::Both;
    profile.semaphore = Order::Both;
    profile.fencing = Fencing::Durable;
    profile.raises_tokens = true;
    profile.wake_up = WakeUp::Lossy;
    profile.remembers_ended = true;
    profile.reports_waiters = true;
    profile.reserves_turns = true;
    profile.inspection = Inspection::ALL;
    profile
};
