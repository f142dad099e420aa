//! The guarantees and limits of each layout on one Redis server, and the check of requests against them.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure_backend::{
    BackendError, Claim, Effect, Fairness, Fault, Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness,
    Mode, Order, Profile, Reach, WakeUp,
};

use crate::claims::names::is_reserved;
use crate::claims::script::{Layout, MAX_PERMITS, ScriptSet};
use crate::error::invalid;

pub(crate) const LIMITS: Limits = {
    let mut limits = Limits::new(Duration::from_millis(100), Duration::from_secs(365 * 24 * 3600));
    limits.max_grants = NonZeroU32::new(1024).unwrap();
    // The server runs a call that renews this number of claims for about 3 ms, and serves no other client meanwhile. The
    // client's part of a call is freed before the next one needs it.
    limits.max_batch = NonZeroU32::new(640).unwrap();
    limits.expiry_slack = Duration::from_millis(1);
    limits
};

const HAZARDS: &[Hazard] = &[
    Hazard::DataLoss,
    Hazard::Restart,
    Hazard::ClockSet,
    Hazard::Failover,
];

/// The hazards in a cluster, where locks move with their slots.
pub(crate) const CLUSTER_HAZARDS: &[Hazard] = &[
    Hazard::DataLoss,
    Hazard::Restart,
    Hazard::ClockSet,
    Hazard::Failover,
    Hazard::InterruptedMove,
];

pub(crate) static PROFILE: Profile = {
    let mut profile = profile("redisson");
    profile.mutex = Order::Both;
    profile.read_write = Order::Both;
    profile.semaphore = Order::Both;
    profile.reports_waiters = true;
    // The first renewal writes a record of tokens and label, for listings. Most locks are released within 100 ms, so
    // they have no record.
    profile.first_renewal = Some(Duration::from_millis(100));
    profile
};

pub(crate) static PLAIN: Profile = {
    let mut profile = string_profile("plain");
    // The keys of this layout have no prefix, so in a listing every string of the database would look like a lock.
    profile.inspection.lists = false;
    profile
};

pub(crate) static SPRING: Profile = string_profile("spring");

/// The profile of a layout that keeps a mutex as a string. Each grant of ours has tokens; foreign holders have none.
/// Foreign waiters may be unseen. So a release reports how many others wait only if it has counted some, and never
/// reports 0.
const fn string_profile(layout: &'static str) -> Profile {
    let mut profile = profile(layout);
    profile.fuller_layout = Some("redisson");
    profile.mutex = Order::Unfair;
    profile.inspection.queue = false;
    profile
}

/// What holds in every layout on one server.
const fn profile(layout: &'static str) -> Profile {
    let liveness = Liveness::Lease(LeaseClock::ServerWall);
    let mut profile = Profile::new("redis", layout, liveness, HAZARDS, LIMITS);
    profile.reach = Reach::Network;
    profile.fencing = Fencing::UntilDataLossAndBackwardClock;
    profile.raises_tokens = true;
    profile.wake_up = WakeUp::Lossy;
    profile.remembers_ended = true;
    profile.inspection = Inspection::ALL;
    profile
}

/// The lease granted for a requested one: at least `min_lease`, rounded up to milliseconds.
pub(crate) fn lease_ms(requested: Duration) -> u64 {
    let whole = LIMITS.lease(requested).as_nanos().div_ceil(1_000_000);
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// Number of tokens that a claim draws, at most `max_grants`.
pub(crate) fn grants(claim: &Claim) -> u64 {
    LIMITS.grants(claim.grants).get().into()
}

/// Checks a claim before it is sent. Returns the scripts that serve it.
pub(crate) fn check_claim(
    claim: &Claim,
    layout: &'static Layout,
) -> Result<&'static ScriptSet, BackendError> {
    if is_reserved(claim.at.key.as_str()) {
        return Err(invalid(
            "a key of that name stores what belongs to other locks: choose another key",
        ));
    }
    let is_served = claim.fairness == Fairness::Unfair || !layout.is_string();
    let Some(scripts) = layout.scripts(claim.mode.kind()).filter(|_| is_served) else {
        return Err(BackendError::unsupported(
            "the layouts `plain` and `spring` have unfair mutexes only: the layout `redisson` has fair mutexes, read-write locks \
             and semaphores",
        ));
    };
    claim.check(&LIMITS)?;
    let Mode::Permits { take, .. } = claim.mode else {
        return Ok(scripts);
    };
    if take.get() > MAX_PERMITS {
        let message =
            format!("a claim takes at most {MAX_PERMITS} permits on Redis, not {take}: use several");
        return Err(BackendError::new(Fault::Limit, Effect::None, message));
    }
    Ok(scripts)
}
