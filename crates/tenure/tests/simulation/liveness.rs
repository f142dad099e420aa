//! Checks of the simulation after its faults have ended: waiters get their locks (rules L1, L2), and no claim is left
//! behind (L4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{ClaimId, Fairness, HolderId, Instant, LockKey, LockStatus, Mode, Query};

use crate::simulation::Simulation;

/// Pause between two inspections of the store.
const LOOK: Duration = Duration::from_millis(30);
/// Maximum time for which a key may be free although a task waits for it: the waiter's longest backoff and one poll.
const PATIENCE: Duration = Duration::from_millis(1_100);
/// Time after the faults in which claims without a guard may remain, because releases are retried.
const SETTLING: Duration = Duration::from_millis(1_500);
/// Maximum time for which a claim may lack a guard, because its grant or its release is under way.
const IN_HAND: Duration = Duration::from_millis(60);
/// Time after a client's death in which its last request may still reach the store.
pub(crate) const IN_FLIGHT: Duration = Duration::from_millis(25);

#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) client: usize,
    pub(crate) key: LockKey,
    pub(crate) mode: Mode,
    pub(crate) fairness: Fairness,
}

/// The waiting tasks by attempt, and the number of guards of each claim.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    pub(crate) waits: BTreeMap<u64, Waiter>,
    pub(crate) held: BTreeMap<ClaimId, u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Death {
    pub(crate) client: usize,
    pub(crate) at: Instant,
}

/// Maximum time for which a key may be free although a task waits for it, with the faults of this simulation.
fn patience(sim: &Simulation) -> Duration {
    let lease = sim.parameters.longest_lease();
    // A holder learns of an eviction or a data loss at its next renewal. Until then, the waiters of its client do not
    // poll.
    let loss_delay = if sim.claims.lock().any_taken() {
        lease / 3
    } else {
        Duration::ZERO
    };
    // A waiter that missed a wake-up polls again when the holder's lease could have ended.
    let poll = if sim.parameters.loses_wakes {
        lease
    } else {
        Duration::ZERO
    };
    PATIENCE + loss_delay + poll
}

/// Checks rules L1, L2 and L4 in a loop, from the end of the faults on.
pub(crate) async fn watch_over(sim: Arc<Simulation>, keys: Vec<LockKey>, death: Option<Death>) {
    let (lease, patience) = (sim.parameters.longest_lease(), patience(&sim));
    let calm_since = sim.now();
    let mut idle: BTreeMap<LockKey, Instant> = BTreeMap::new();
    let mut adrift: BTreeMap<ClaimId, Instant> = BTreeMap::new();
    let mut orphaned: Vec<LockKey> = Vec::new();
    loop {
        let now = sim.now();
        for key in &keys {
            let status = look(&sim, key).await;
            let of_the_dead = death
                .as_ref()
                .is_some_and(|death| has_any_of(&status, death.client));
            if of_the_dead && !orphaned.contains(key) {
                orphaned.push(key.clone());
            }
            if of_the_dead
                && death
                    .as_ref()
                    .is_some_and(|death| now > death.at + lease + IN_FLIGHT)
            {
                return sim.violated(
                    "L1",
                    format!("a dead client's claim at {key:?} outlives its lease"),
                );
            }
            let since = match could_go(&sim, key, &status) {
                true => *idle.entry(key.clone()).or_insert(now),
                false => {
                    idle.remove(key);
                    now
                }
            };
            let served = sim.claims.lock().last_served(key).unwrap_or(since);
            if now - since.max(served) > patience {
                let rule = if orphaned.contains(key) { "L1" } else { "L2" };
                return sim.violated(rule, format!("{key:?} is free although a task waits for it"));
            }
            if now - calm_since > SETTLING && nobodys(&sim, &status, &death, &mut adrift, now) {
                return sim.violated(
                    "L4",
                    format!("the claim that holds {key:?} has no guard in any task"),
                );
            }
        }
        // sleep: advances paused time by the interval.
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(sim: &Simulation, key: &LockKey) -> Option<LockStatus> {
    // Inspects over its own connection, because the clients' connections may be closed.
    let page = sim.door().inspect(Query::Key(key.clone())).await;
    page.ok()?.items.pop()
}

fn has_any_of(status: &Option<LockStatus>, client: usize) -> bool {
    let name = label(client);
    let Some(status) = status else { return false };
    let holders = status.holders.iter().map(|holder| &holder.label);
    let waiters = status.waiters.iter().flatten().map(|waiter| &waiter.label);
    holders.chain(waiters).flatten().any(|label| **label == *name)
}

/// Returns true if the store could grant the key to a waiting task of a live client: to the head of the store's queue,
/// or, if the queue is empty, to any.
fn could_go(sim: &Simulation, key: &LockKey, status: &Option<LockStatus>) -> bool {
    let present = sim.present.lock();
    let live = |waits: &&Waiter| waits.key == *key && !sim.is_dead(waits.client);
    let held: Vec<Mode> = status
        .iter()
        .flat_map(|status| &status.holders)
        .map(|holder| holder.mode)
        .collect();
    let admits = |mode: Mode| mode.admits(held.iter().copied());
    let mut queue = status.iter().flat_map(|status| status.waiters.iter().flatten());
    match queue.next() {
        Some(head) => {
            let mut fair = present.waits.values().filter(live);
            let is_theirs = |waits: &Waiter| head.label.as_deref() == Some(&*label(waits.client));
            // A store of one order queues the claims of unfair callers too.
            let queues = |waits: &Waiter| waits.fairness == Fairness::Fifo || sim.parameters.has_one_order;
            fair.any(|waits| queues(waits) && is_theirs(waits)) && admits(head.mode)
        }
        None => {
            // A client serves its unfair waiters in order of arrival, so only the first of each client counts.
            let mut asking = BTreeSet::new();
            let mut asks = present
                .waits
                .values()
                .filter(live)
                .filter(|waits| waits.fairness == Fairness::Fifo || asking.insert(waits.client));
            asks.any(|waits| admits(waits.mode))
        }
    }
}

/// Returns true if a live client's claim has held the key for more than [`IN_HAND`] without a guard in any task.
fn nobodys(
    sim: &Simulation,
    status: &Option<LockStatus>,
    death: &Option<Death>,
    adrift: &mut BTreeMap<ClaimId, Instant>,
    now: Instant,
) -> bool {
    let present = sim.present.lock();
    let dead = death.as_ref().map(|death| label(death.client));
    let mut found = false;
    for holder in status.iter().flat_map(|status| &status.holders) {
        let HolderId::Claim(id) = &holder.id else { continue };
        // A store that lost its data has forgotten which claims ended, so a late request may place an ended claim again.
        let forgotten = sim.claims.lock().is_older(*id, sim.lost_data_at());
        if present.held.contains_key(id) || holder.label.as_deref() == dead.as_deref() || forgotten {
            adrift.remove(id);
        } else {
            found |= now - *adrift.entry(*id).or_insert(now) > IN_HAND;
        }
    }
    found
}

pub(crate) fn label(client: usize) -> String {
    format!("client {client}")
}

/// Checks that the store has no claims except those for which `excused` returns true.
pub(crate) async fn nothing_is_left(
    sim: &Simulation,
    keys: &[LockKey],
    excused: impl Fn(&str, ClaimId) -> bool,
) {
    for key in keys {
        let Some(status) = look(sim, key).await else {
            continue;
        };
        let holders = status.holders.into_iter().map(|holder| (holder.label, holder.id));
        let waiters = status.waiters.into_iter().flatten();
        let left = holders.chain(waiters.map(|waiter| (waiter.label, waiter.id)));
        for (label, id) in left {
            let (Some(label), HolderId::Claim(id)) = (label, id) else {
                continue;
            };
            if !excused(&label, id) {
                let claim = id.number();
                sim.violated(
                    "L4",
                    format!("claim {claim} of {label} is left behind at {key:?}"),
                );
            }
        }
    }
}
