//! What all stores promise whose contenders queue on a server.

use std::num::NonZeroU32;

use tenure_backend::{
    Fencing, Hazard, Inspection, LeaseClock, Limits, Liveness, Profile, Reach, ServerDeath, TokenRange,
    WakeUp,
};

/// Number of tokens between two changes on the server: the tokens of a claim are the number of the change that created its record
/// times this, and those that follow.
const MAX_GRANTS: NonZeroU32 = NonZeroU32::new(1_024).unwrap();

/// The most requests of one call.
const MAX_BATCH: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

/// The tokens of a claim whose record was created by this change. `None` if their numbers are too large.
#[must_use]
pub fn tokens(created: i64, grants: u32) -> Option<TokenRange> {
    let first = u64::try_from(created)
        .ok()?
        .checked_mul(MAX_GRANTS.get().into())?;
    TokenRange::new(first.try_into().ok()?, grants.try_into().ok()?)
}

/// The promises of a store with this many servers, and with these limits on leases. It serves no kind of lock yet.
#[must_use]
pub fn profile(store: &'static str, layout: &'static str, servers: usize, mut limits: Limits) -> Profile {
    limits.max_grants = MAX_GRANTS;
    limits.max_batch = MAX_BATCH;
    let liveness = Liveness::Lease(LeaseClock::ServerMonotonic);
    let mut profile = Profile::new(store, layout, liveness, &[Hazard::DataLoss], limits);
    profile.reach = Reach::Network;
    profile.server_death = match servers {
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
