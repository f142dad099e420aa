//! What the layout `claims` promises on SQLite, its bounds, and the check of a claim against them.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{
    BackendError, Claim, Effect, Fault, Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness, Mode,
    Order, Profile, Reach, WakeUp,
};

const fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("the limits below are written as positive numbers")
}

pub(crate) const LIMITS: Limits = Limits {
    min_lease: Duration::from_millis(1),
    max_lease: Duration::from_secs(365 * 24 * 3600),
    max_grants: count(1024),
    max_batch: count(1024),
    margin: None,
    late_by: Duration::ZERO,
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
    tells_others: true,
    inspection: Inspection {
        lists: true,
        queue: true,
        labels: true,
        remaining: true,
    },
    limits: LIMITS,
};

pub(crate) const LEASE_TOO_LONG: &str =
    "a lease lasts at most 365 days here: ask for a shorter one, it is renewed";

/// The lease that is given to a claim that asks for `asked`.
pub(crate) fn lease(asked: Duration) -> Duration {
    asked.max(LIMITS.min_lease)
}

/// Refuses what no key could grant.
pub(crate) fn check(claim: &Claim) -> Result<(), BackendError> {
    let refuse = |fault, message: &str| Err(BackendError::new(fault, Effect::None, message));
    match claim.mode {
        Mode::Permits { take, of } if take > of => {
            return refuse(
                Fault::Invalid,
                "more permits were asked for than the semaphore has: this could never be granted",
            );
        }
        _ => {}
    }
    if claim.lease > LIMITS.max_lease {
        return refuse(Fault::Limit, LEASE_TOO_LONG);
    }
    Ok(())
}
