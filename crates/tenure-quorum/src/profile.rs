//! Derives the profile of a quorum from those of its members.

use std::time::Duration;

use tenure_backend::{Order, Profile, ServerDeath};

/// Returns whether two stores can be members of one quorum: their profiles have the same store, layout, reach,
/// liveness and hazards.
pub(crate) fn is_alike(one: &Profile, other: &Profile) -> bool {
    let kind = |profile: &Profile| {
        (
            profile.store,
            profile.layout,
            profile.reach,
            profile.liveness,
            profile.hazards,
        )
    };
    kind(one) == kind(other)
}

/// Returns the profile of a quorum: it promises only what all members promise, within the limits of all of them.
///
/// `first` is the profile of one member and `others` are those of the rest, which are [alike](is_alike).
pub(crate) fn profile<'a>(
    first: &Profile,
    others: impl Iterator<Item = &'a Profile>,
    max_lease: Duration,
    drift_ppm: u32,
) -> Profile {
    let mut all = first.clone();
    all.store = "quorum";
    all.fuller_layout = None;
    all.limits.max_lease = all.limits.max_lease.min(max_lease);
    all.limits.drift_ppm = drift_ppm;
    let mut count = 1;
    for member in others {
        count += 1;
        all.replicas = all.replicas.min(member.replicas);
        all.fencing = all.fencing.min(member.fencing);
        all.raises_tokens &= member.raises_tokens;
        all.wake_up = all.wake_up.min(member.wake_up);
        all.remembers_ended &= member.remembers_ended;
        all.mutex = both(all.mutex, member.mutex);
        all.read_write = both(all.read_write, member.read_write);
        all.first_renewal = all.first_renewal.max(member.first_renewal);
        let (ours, theirs) = (&mut all.limits, &member.limits);
        ours.min_lease = ours.min_lease.max(theirs.min_lease);
        ours.max_lease = ours.max_lease.min(theirs.max_lease);
        ours.max_grants = ours.max_grants.min(theirs.max_grants);
        ours.max_batch = ours.max_batch.min(theirs.max_batch);
        ours.margin = ours.margin.max(theirs.margin);
        ours.expiry_slack = ours.expiry_slack.max(theirs.expiry_slack);
        all.inspection.lists &= member.inspection.lists;
        all.inspection.labels &= member.inspection.labels;
        all.inspection.remaining &= member.inspection.remaining;
    }
    // No fair locks: the members' queues can differ, so it may be that no claim is first at a majority.
    all.mutex = both(all.mutex, all.mutex);
    all.read_write = both(all.read_write, all.read_write);
    // No semaphores: any two majorities share a member, but three majorities may have no member in common. So three
    // claims could be granted a semaphore of two permits.
    all.semaphore = Order::None;
    all.server_death = match count {
        // A majority of two servers is both.
        ..=2 => ServerDeath::Outage,
        _ => ServerDeath::Tolerated,
    };
    all.inspection.queue = false;
    all.reports_waiters = false;
    // A claim has a turn at each member alone, and the members may wake different claims.
    all.reserves_turns = false;
    all
}

/// The order in which a quorum serves a kind of lock that two members serve in these orders: unfair, if both serve
/// unfair claims, otherwise none.
fn both(one: Order, other: Order) -> Order {
    let is_unfair = |order| matches!(order, Order::Unfair | Order::Both | Order::FifoForBoth);
    if is_unfair(one) && is_unfair(other) {
        Order::Unfair
    } else {
        Order::None
    }
}
