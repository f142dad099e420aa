//! Slots that are being moved, and the nodes that must not place claims in them afterwards.
//!
//! A replica does not know which slots its master is giving away. When it takes over, it serves such a slot although
//! keys have been moved to another node, and it would grant locks that are held. So a client that has seen the slot open
//! places nothing there at a former replica, until the leases of that time have ended. While a slot is open, no node
//! renews its claims.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::Instant;

/// The lease that the engine asks for unless the caller names another.
pub(super) const USUAL_LEASE: Duration = Duration::from_secs(30);

/// The slots that the client has seen open.
#[derive(Default)]
pub(super) struct OpenSlots(Mutex<State>);

#[derive(Default)]
struct State {
    open: BTreeMap<u16, Open>,
    /// The longest lease that a claim of this client asked for.
    longest_lease: Duration,
}

struct Open {
    /// When the slot was last seen open, and none of `replicas` served it.
    seen: Instant,
    /// Addresses of the cluster's replicas since the slot was first seen open.
    replicas: BTreeSet<String>,
}

impl OpenSlots {
    /// Notes that a slot is being moved, which the node `owner` serves.
    pub(super) fn note(&self, slot: u16, owner: &str, replicas: &BTreeSet<String>, now: Instant) {
        let mut state = self.0.lock();
        let limit = state.limit();
        state.open.retain(|_, open| now < open.seen + limit);
        let open = state.open.entry(slot).or_insert_with(|| Open {
            seen: now,
            replicas: BTreeSet::new(),
        });
        // After a failover, the node to which the slot was being moved shows it as open until an operator repairs that.
        if !open.replicas.contains(owner) {
            open.seen = now;
        }
        open.replicas.extend(replicas.iter().cloned());
    }

    /// Notes the replicas of the cluster, one of which may take over a slot that was seen open.
    pub(super) fn note_replicas(&self, replicas: &BTreeSet<String>) {
        for open in self.0.lock().open.values_mut() {
            open.replicas.extend(replicas.iter().cloned());
        }
    }

    /// The time for which a claim with this lease must not be placed in a slot at a node; `None` if it may be placed.
    pub(super) fn closed_for(
        &self,
        slot: u16,
        node: &str,
        lease: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let mut state = self.0.lock();
        state.longest_lease = state.longest_lease.max(lease);
        let open = state.open.get(&slot)?;
        let until = open.seen + state.limit();
        (now < until && open.replicas.contains(node)).then(|| until - now)
    }
}

impl State {
    /// The time after which no claim of an open slot is held any more, if no client takes longer leases than this one.
    fn limit(&self) -> Duration {
        self.longest_lease.max(USUAL_LEASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::ORIGIN + Duration::from_secs(seconds)
    }

    fn addresses(nodes: &[&str]) -> BTreeSet<String> {
        nodes.iter().map(|node| (*node).to_owned()).collect()
    }

    #[test]
    fn a_former_replica_is_closed_until_the_leases_have_ended() {
        let open = OpenSlots::default();
        let closed_for = |node, now| open.closed_for(7, node, SECOND, at(now));
        assert_eq!(closed_for("replica", 0), None);
        open.note(7, "source", &addresses(&["replica"]), at(10));
        open.note(7, "source", &addresses(&["replica"]), at(20));
        assert_eq!(closed_for("replica", 21), Some(29 * SECOND));
        assert_eq!(closed_for("source", 21), None);
        assert_eq!(closed_for("target", 21), None);
        assert_eq!(
            open.closed_for(8, "replica", SECOND, at(21)),
            None,
            "another slot"
        );
        // The target shows the slot as open for ever.
        open.note(7, "replica", &addresses(&["source"]), at(40));
        assert_eq!(closed_for("replica", 49), Some(SECOND));
        assert_eq!(closed_for("replica", 50), None);
        open.note(7, "replica", &addresses(&["source"]), at(60));
        assert_eq!(closed_for("replica", 60), None);
    }

    #[test]
    fn a_replica_that_joins_later_is_closed_too() {
        let open = OpenSlots::default();
        open.note(7, "source", &addresses(&[]), at(10));
        open.note_replicas(&addresses(&["replica"]));
        assert_eq!(open.closed_for(7, "replica", SECOND, at(10)), Some(30 * SECOND));
    }

    #[test]
    fn a_slot_stays_closed_for_the_longest_lease() {
        let open = OpenSlots::default();
        open.note(7, "source", &addresses(&["replica"]), at(10));
        assert_eq!(open.closed_for(1, "source", 60 * SECOND, at(10)), None);
        assert_eq!(open.closed_for(7, "replica", SECOND, at(11)), Some(59 * SECOND));
    }
}
