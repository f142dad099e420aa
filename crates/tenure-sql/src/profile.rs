//! The profile of the SQLite store: what it promises, and its limits.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{
    Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness, Order, Profile, Reach, WakeUp,
};

pub(crate) const LIMITS: Limits = Limits {
    min_lease: Duration::from_millis(1),
    max_lease: Duration::from_secs(365 * 24 * 3600),
    max_grants: NonZeroU32::new(1024).unwrap(),
    max_batch: NonZeroU32::new(1024).unwrap(),
    margin: None,
    expiry_slack: Duration::ZERO,
};

pub(crate) static SQLITE: Profile = Profile {
    store: "sqlite",
    layout: "claims",
    reach: Reach::Machine,
    mutex: Order::Both,
    read_write: Order::Both,
    semaphore: Order::Both,
    liveness: Liveness::Lease(LeaseClock::Shared),
    hazards: &[Hazard::DataLoss],
    fencing: Fencing::Durable,
    wake_up: WakeUp::Lossy,
    remembers_ended: true,
    reports_waiters: true,
    inspection: Inspection {
        lists: true,
        queue: true,
        labels: true,
        remaining: true,
    },
    first_renewal: None,
    limits: LIMITS,
};
