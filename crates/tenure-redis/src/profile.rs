//! What the layout `redisson` promises on one Redis server, its bounds, and the check of what is asked against them.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{
    BackendError, Claim, Departure, Effect, Fault, Fencing, Hazard, Holder, Inspection, LeaseClock, Limits,
    Liveness, Mode, Order, Profile, Reach, Renewal, WakeUp,
};

use crate::names::is_reserved;

const fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("the limits below are written as positive numbers")
}

pub(crate) const LIMITS: Limits = Limits {
    min_lease: Duration::from_millis(100),
    max_lease: Duration::from_secs(365 * 24 * 3600),
    max_grants: count(64),
    max_batch: count(10_000),
    margin: None,
    late_by: Duration::from_millis(1),
};

pub(crate) static PROFILE: Profile = Profile {
    store: "redis",
    layout: "redisson",
    reach: Reach::Network,
    mutex: Order::Both,
    read_write: Order::None,
    semaphore: Order::None,
    liveness: Liveness::Lease(LeaseClock::ServerWall),
    hazards: &[
        Hazard::DataLoss,
        Hazard::Restart,
        Hazard::ClockSet,
        Hazard::Failover,
    ],
    fencing: Fencing::UntilDataLossAndBackwardClock,
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

/// The lease that is given to whoever asks for `asked`, in whole milliseconds.
pub(crate) fn lease_ms(asked: Duration) -> u64 {
    let whole = asked.as_nanos().div_ceil(1_000_000);
    let least = LIMITS.min_lease.as_nanos() / 1_000_000;
    u64::try_from(whole.max(least)).unwrap_or(u64::MAX)
}

/// How many tokens are reserved for a claim that asks for `asked`.
pub(crate) fn grants(asked: NonZeroU32) -> u32 {
    asked.min(LIMITS.max_grants).get()
}

pub(crate) fn check_claim(claim: &Claim) -> Result<(), BackendError> {
    if is_reserved(claim.at.key.as_str()) {
        let message = "a key of that name stores what belongs to other locks: choose another key";
        return Err(BackendError::new(Fault::Invalid, Effect::None, message));
    }
    match claim.mode {
        Mode::Exclusive => check_lease(claim.lease),
        Mode::Read | Mode::Write => Err(BackendError::unsupported(
            "read-write locks are not served on Redis: use a mutex here, or another store",
        )),
        Mode::Permits { .. } => Err(BackendError::unsupported(
            "semaphores are not served on Redis: use a mutex here, or another store",
        )),
    }
}

pub(crate) fn check_renewal(renewal: &Renewal) -> Result<(), BackendError> {
    check_lease(renewal.lease)
}

pub(crate) fn check_departure(departure: &Departure) -> Result<(), BackendError> {
    let Some(heir) = &departure.heir else {
        return Ok(());
    };
    match &departure.who {
        Holder::Claim(claim) if claim.key == heir.claim.at.key => check_claim(&heir.claim),
        _ => Err(BackendError::new(
            Fault::Invalid,
            Effect::None,
            "an heir takes over from one claim on the same key",
        )),
    }
}

pub(crate) fn check_batch(len: usize) -> Result<(), BackendError> {
    let max = LIMITS.max_batch;
    if u32::try_from(len).is_ok_and(|len| len <= max.get()) {
        return Ok(());
    }
    let message = format!("a batch has {max} elements at the most, this one has {len}: split it");
    Err(BackendError::new(Fault::Limit, Effect::None, message))
}

fn check_lease(lease: Duration) -> Result<(), BackendError> {
    if lease <= LIMITS.max_lease {
        return Ok(());
    }
    let message = "a lease lasts at most 365 days here: ask for a shorter one, it is renewed";
    Err(BackendError::new(Fault::Limit, Effect::None, message))
}
