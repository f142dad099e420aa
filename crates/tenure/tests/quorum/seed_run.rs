//! Runs the simulation of one seed, and checks the result.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tenure::testing::seeded;
use tenure::{Client, ReleaseTarget, Settings};
use tenure_backend::{
    Backend, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, FencingToken, LockKey, Mode, Query,
    ReleaseRequest, RenewRequest, TokenRange,
};
use tenure_memory::MemoryStore;
use tenure_quorum::{Config, Quorum};
use tenure_testkit::{Dice, FaultRates, check};
use tokio::task::JoinHandle;

use crate::actor::Actor;
use crate::link::{Network, connect};
use crate::world::{AfterLoss, World};

/// The counters of all members start above this, so that no run depends on the wall clock.
const FIRST_TOKEN: u64 = 4_000_000_000_000_000;
/// Maximum time in which a task acquires and releases one lock, without faults and after all leases have ended.
const TURN: Duration = Duration::from_millis(3_000);
/// Maximum time for which the release of an abandoned claim is repeated in the background, once the faults have ended.
const CLEANUP: Duration = Duration::from_millis(1_500);

pub(crate) fn run(seed: u64, after: AfterLoss) -> Arc<World> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    let world = runtime.block_on(live(seed, after));
    world.forget_holds();
    drop(runtime);
    if let Err(found) = check(world.history()) {
        found
            .iter()
            .for_each(|violation| world.add_violation(violation.to_string()));
    }
    world
}

async fn live(seed: u64, after: AfterLoss) -> Arc<World> {
    let mut dice = Dice::new(seed);
    let ms = Duration::from_millis;
    let members = [3, 3, 3, 5, 2, 4][pick(&mut dice, 6)];
    let clients = 2 + pick(&mut dice, 3);
    // A long lease shows claims that are left, because they do not expire during the simulation.
    let lease = if dice.chance(75) { ms(600) } else { ms(8_000) };
    let world = World::new(members, clients, lease);
    for member in &world.members {
        let skew = dice.below(1_000);
        lift(&member.stores[0], FIRST_TOKEN + skew).await;
        // The store after a data loss draws greater tokens, like a restarted server, which draws tokens from its clock.
        lift(&member.stores[1], FIRST_TOKEN + 1_000_000).await;
    }
    let keys: Vec<(LockKey, bool)> = (0..1 + dice.below(2))
        .map(|n| {
            (
                LockKey::new(format!("k{n}")).expect("a good key"),
                dice.chance(40),
            )
        })
        .collect();
    let network = network(&mut dice);
    let made: Vec<Client> = (0..clients)
        .map(|number| client(&world, number, network, &mut dice))
        .collect();
    let watch = tokio::spawn(watch_members(world.clone(), keys.clone()));
    let mut actors: Vec<(usize, JoinHandle<()>)> = Vec::new();
    for (number, client) in made.iter().enumerate() {
        for _ in 0..1 + dice.below(2) {
            let actor = Actor {
                world: world.clone(),
                client: client.clone(),
                number,
                owner: actors.len() as u64 + 1,
                keys: keys.clone(),
                lease,
                dice: Dice::new(dice.roll()),
            };
            actors.push((number, tokio::spawn(actor.run(1 + dice.below(4)))));
        }
    }
    inject_faults(&world, &made, &keys, after, &mut dice).await;
    actors
        .iter()
        .filter(|(number, _)| world.is_dead(*number))
        .for_each(|(_, actor)| actor.abort());
    world.end_faults();
    let limit = lease * 2 + TURN * u32::try_from(actors.len() * 4).unwrap_or(0);
    let ended = async {
        for (_, actor) in &mut actors {
            if let Err(error) = actor.await
                && error.is_panic()
            {
                world.violated("panic", error);
            }
        }
    };
    if tokio::time::timeout(limit, ended).await.is_err() {
        world.violated("L2", "a task is stuck although the faults have ended");
        return world;
    }
    // sleep: advances paused time until the background has released what the clients abandoned.
    tokio::time::sleep(CLEANUP).await;
    let of_live = |label: &str| (0..clients).any(|n| label == name_of(n) && !world.may_leave_claims(n));
    nothing_is_left(&world, &keys, of_live).await;
    for (number, client) in made
        .iter()
        .enumerate()
        .filter(|(number, _)| !world.is_dead(*number))
    {
        if let Err(error) = client.close(Duration::from_secs(10)).await {
            world.violated("L4", format!("client {number} could not be closed: {error:?}"));
        }
    }
    // sleep: advances paused time until claims without a release have expired.
    tokio::time::sleep(lease + TURN).await;
    nothing_is_left(&world, &keys, |_| true).await;
    watch.abort();
    world
}

fn pick(dice: &mut Dice, count: usize) -> usize {
    usize::try_from(dice.below(count as u64)).unwrap_or(0)
}

fn name_of(client: usize) -> String {
    format!("client-{client}")
}

fn network(dice: &mut Dice) -> Network {
    let ms = Duration::from_millis;
    let rates = match dice.below(4) {
        0 => FaultRates::NONE,
        1 => FaultRates::HIGH,
        2 => FaultRates {
            delay: ms(20),
            repeats: 40,
            ..FaultRates::HIGH
        },
        _ => FaultRates {
            fails_before: 25,
            loses_wake: 0,
            spurious_wakes: 0,
            ..FaultRates::HIGH
        },
    };
    Network {
        rates,
        delay: ms([0, 2, 10][pick(dice, 3)]),
        slow: [0, 5, 25][pick(dice, 3)],
        vanish: [0, 0, 10][pick(dice, 3)],
        late: ms([100, 400][pick(dice, 2)]),
    }
}

/// A client with the real engine and a quorum of its own.
fn client(world: &Arc<World>, number: usize, network: Network, dice: &mut Dice) -> Client {
    let members = (0..world.members.len())
        .map(|member| connect(world, number, member, network, dice))
        .collect();
    let config = Config::default()
        .member_timeout(Duration::from_millis(50 + dice.below(100)))
        .max_lease(world.longest_lease);
    let quorum = Quorum::new(members, config).expect("members of one kind");
    let mut seed = [0; 16];
    seed[..8].copy_from_slice(&dice.roll().to_le_bytes());
    seed[8..].copy_from_slice(&dice.roll().to_le_bytes());
    Client::new(quorum, seeded(Settings::default().label(name_of(number)), seed))
}

async fn inject_faults(
    world: &World,
    clients: &[Client],
    keys: &[(LockKey, bool)],
    after: AfterLoss,
    dice: &mut Dice,
) {
    let mut may_forget = true;
    for _ in 0..2 + dice.below(6) {
        let ms = Duration::from_millis(dice.below(400));
        // sleep: advances paused time until the next fault.
        tokio::time::sleep(ms).await;
        let client = pick(dice, clients.len());
        let member = pick(dice, world.members.len());
        let time = Duration::from_millis(dice.below(1_200));
        match dice.below(9) {
            0 | 1 => world.pause(client, time),
            // Cuts the client off from one member, or from several, up to a majority.
            7 | 8 => {
                let first = pick(dice, world.members.len());
                for nth in 0..1 + pick(dice, world.members.len() / 2 + 1) {
                    let time = Duration::from_millis(dice.below(2_000));
                    world.cut(client, (first + nth) % world.members.len(), time);
                }
            }
            2 => world.suspend(client, time),
            3 => world.stop_member(member, time),
            4 if std::mem::take(&mut may_forget) => world.forget(member, after),
            5 => {
                let key = keys[pick(dice, keys.len())].0.clone();
                let evict = clients[client].evict(ReleaseTarget::All(key));
                let _ = tokio::time::timeout(Duration::from_millis(300), evict).await;
            }
            _ => {}
        }
    }
    if dice.chance(40) {
        world.kill(pick(dice, clients.len()));
    }
}

/// The claims that each member has granted for a key, with their modes and labels.
async fn granted(world: &World, key: &LockKey) -> Vec<Vec<(String, Mode, String)>> {
    let mut all = Vec::new();
    for member in &world.members {
        let store = member.stores[member.epoch()].client(Arc::new(world.clock.clone()));
        let page = store
            .inspect(Query::Key(key.clone()))
            .await
            .expect("memory answers");
        let holders = page.items.into_iter().flat_map(|status| status.holders);
        let view = |holder: tenure_backend::HolderStatus| {
            (
                holder.id.to_string(),
                holder.mode,
                holder.label.as_deref().unwrap_or_default().to_owned(),
            )
        };
        all.push(holders.map(view).collect());
    }
    all
}

/// Checks every 5 ms that no majority of the members grants two claims that exclude each other.
async fn watch_members(world: Arc<World>, keys: Vec<(LockKey, bool)>) {
    loop {
        for (key, _) in &keys {
            let views = granted(&world, key).await;
            let mut claims: Vec<_> = views.iter().flatten().collect();
            claims.sort_by(|one, other| one.0.cmp(&other.0));
            let held: Vec<_> = claims
                .chunk_by(|one, other| one.0 == other.0)
                .filter(|claim| claim.len() > world.members.len() / 2)
                .map(|claim| claim[0])
                .collect();
            for (at, one) in held.iter().enumerate() {
                if let Some(other) = held[..at].iter().find(|other| !one.1.admits([other.1])) {
                    return world.violated("V1", format!("a majority grants both {one:?} and {other:?}"));
                }
            }
        }
        // sleep: advances paused time until the next look.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn nothing_is_left(world: &World, keys: &[(LockKey, bool)], counts: impl Fn(&str) -> bool) {
    for (key, _) in keys {
        for (member, claims) in granted(world, key).await.into_iter().enumerate() {
            for claim in claims.iter().filter(|(_, _, label)| counts(label)) {
                world.violated("L4", format!("member {member} still grants {claim:?}"));
            }
        }
    }
}

/// Raises the token counter of a member to `token`, by a claim that serves only this.
async fn lift(store: &MemoryStore, token: u64) {
    let member = store.client(Arc::new(tenure_backend::SystemClock));
    let id = ClaimId::new(ClientId::from_random([255; 16]), 1);
    let key = LockKey::new("lift").expect("a good key");
    let claim = Arc::new(Claim::of(ClaimRef { key, id }, Duration::from_secs(1)));
    let not_after = member.clock().now() + Duration::from_secs(1);
    let granted = member.clone().acquire(claim.clone(), not_after).await;
    assert!(granted.is_ok(), "{granted:?}");
    let tokens = FencingToken::new(token).and_then(|token| TokenRange::new(token, NonZeroU32::MIN));
    let raise = RenewRequest {
        raise: tokens,
        ..RenewRequest::of(&claim)
    };
    member.clone().renew(Batch::from_iter([raise])).await;
    member
        .release(Batch::from_iter([ReleaseRequest::of(&claim, Cause::Unlocked)]))
        .await;
}
