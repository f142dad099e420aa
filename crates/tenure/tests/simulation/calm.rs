//! What must be so once the weather has ended: whoever waits is served (L1, L2), and nothing is left behind (L4).
//! What must be so at all times is judged where it happens, and by the checker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{ClaimId, Fairness, HolderId, Instant, LockKey, LockStatus, Mode, Query};

use crate::world::World;

/// How often the store is looked at.
const LOOK: Duration = Duration::from_millis(30);
/// How long a key may be free beside somebody who waits for it: the longest backoff, and a poll.
const PATIENCE: Duration = Duration::from_millis(1_100);
/// How long what was sent in bad weather may take to be repeated and answered.
const SETTLING: Duration = Duration::from_millis(1_500);
/// How long a claim may be on its way to or from its holder.
const IN_HAND: Duration = Duration::from_millis(60);
/// How long after a client's death its last request may still arrive.
pub(crate) const IN_FLIGHT: Duration = Duration::from_millis(25);

/// Somebody who waits without a limit that ends before he is served.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    pub(crate) client: usize,
    pub(crate) key: LockKey,
    pub(crate) mode: Mode,
    pub(crate) fairness: Fairness,
}

/// Who waits, and which claims are in somebody's hands.
#[derive(Debug, Default)]
pub(crate) struct Present {
    pub(crate) waits: BTreeMap<u64, Waits>,
    pub(crate) held: BTreeMap<ClaimId, u32>,
}

/// The death of a client.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    pub(crate) client: usize,
    pub(crate) at: Instant,
}

/// How long a key may be free beside somebody who waits for it.
fn patience(world: &World) -> Duration {
    let lease = world.climate.longest_lease();
    // A holder learns at its next renewal that its claim was taken away: so long its client holds others back.
    let belief = if world.claims.lock().any_taken() {
        lease / 3
    } else {
        Duration::ZERO
    };
    // Whoever missed a wake-up asks again when the holder's lease could have ended.
    let poll = if world.climate.loses_wakes {
        lease
    } else {
        Duration::ZERO
    };
    PATIENCE + belief + poll
}

/// Watches over the world from the end of the weather until every task has ended.
pub(crate) async fn watch_over(world: Arc<World>, keys: Vec<LockKey>, death: Option<Death>) {
    let (lease, patience) = (world.climate.longest_lease(), patience(&world));
    let calm_since = world.now();
    let mut idle: BTreeMap<LockKey, Instant> = BTreeMap::new();
    let mut adrift: BTreeMap<ClaimId, Instant> = BTreeMap::new();
    let mut orphaned: Vec<LockKey> = Vec::new();
    loop {
        let now = world.now();
        for key in &keys {
            let status = look(&world, key).await;
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
                return world.violated(
                    "L1",
                    format!("a dead client's claim at {key:?} outlives its lease"),
                );
            }
            let since = match could_go(&world, key, &status) {
                true => *idle.entry(key.clone()).or_insert(now),
                false => {
                    idle.remove(key);
                    now
                }
            };
            let served = world.claims.lock().last_served(key).unwrap_or(since);
            if now - since.max(served) > patience {
                let rule = if orphaned.contains(key) { "L1" } else { "L2" };
                return world.violated(rule, format!("{key:?} is free, and somebody waits for it"));
            }
            if now - calm_since > SETTLING && nobodys(&world, &status, &death, &mut adrift, now) {
                return world.violated("L4", format!("the claim that holds {key:?} is in nobody's hands"));
            }
        }
        // sleep: time is paused, and this is the interval of the looks.
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(world: &World, key: &LockKey) -> Option<LockStatus> {
    // A door of its own: those of the clients may be closed.
    let page = world.door().inspect(Query::Key(key.clone())).await;
    page.ok()?.items.pop()
}

fn has_any_of(status: &Option<LockStatus>, client: usize) -> bool {
    let name = label(client);
    let Some(status) = status else { return false };
    let holders = status.holders.iter().map(|holder| &holder.label);
    let waiters = status.waiters.iter().flatten().map(|waiter| &waiter.label);
    holders.chain(waiters).flatten().any(|label| **label == *name)
}

/// Whether somebody who lives waits for the key and could have it: the head of the store's queue, or anybody if nobody
/// queues there.
fn could_go(world: &World, key: &LockKey, status: &Option<LockStatus>) -> bool {
    let present = world.present.lock();
    let live = |waits: &&Waits| waits.key == *key && !world.is_dead(waits.client);
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
            let is_theirs = |waits: &Waits| head.label.as_deref() == Some(&*label(waits.client));
            fair.any(|waits| waits.fairness == Fairness::Fifo && is_theirs(waits)) && admits(head.mode)
        }
        None => {
            // The unfair waiters of one client go in the order in which they came, whatever their modes.
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

/// Whether a live client's claim holds the key for a while though none of its tasks has it.
fn nobodys(
    world: &World,
    status: &Option<LockStatus>,
    death: &Option<Death>,
    adrift: &mut BTreeMap<ClaimId, Instant>,
    now: Instant,
) -> bool {
    let present = world.present.lock();
    let dead = death.as_ref().map(|death| label(death.client));
    let mut found = false;
    for holder in status.iter().flat_map(|status| &status.holders) {
        let HolderId::Claim(id) = &holder.id else { continue };
        // A store that lost its data has forgotten that a claim has ended: a late request places it once more.
        let forgotten = world.claims.lock().is_older(*id, world.lost_data_at());
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

/// Nobody but the excused has anything in the store.
pub(crate) async fn nothing_is_left(
    world: &World,
    keys: &[LockKey],
    excused: impl Fn(&str, ClaimId) -> bool,
) {
    for key in keys {
        let Some(status) = look(world, key).await else {
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
                world.violated(
                    "L4",
                    format!("claim {claim} of {label} is left behind at {key:?}"),
                );
            }
        }
    }
}
