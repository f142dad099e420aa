//! The promises and the limits of the memory store.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{Fencing, Inspection, LeaseClock, Limits, Liveness, Order, Profile, WakeUp};

pub(crate) const LIMITS: Limits = {
    let mut limits = Limits::new(Duration::from_millis(1), Duration::from_secs(365 * 24 * 3600));
    limits.max_grants = NonZeroU32::new(1024).unwrap();
    limits.max_batch = NonZeroU32::new(256).unwrap();
    limits
};

pub(crate) static PROFILE: Profile = {
    let liveness = Liveness::Lease(LeaseClock::Shared);
    let mut profile = Profile::new("memory", "claims", liveness, &[], LIMITS);
    profile.mutex = Order::Both;
    profile.read_write = Order::Both;
    profile.semaphore = Order::Both;
    profile.fencing = Fencing::Process;
    profile.raises_tokens = true;
    profile.wake_up = WakeUp::Reliable;
    profile.remembers_ended = true;
    profile.reports_waiters = true;
    profile.reserves_turns = true;
    profile.inspection = Inspection::ALL;
    profile
};
