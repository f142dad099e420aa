//! One seed's world from its making to its end, and the judgement on it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure::testing::seeded;
use tenure::{Client, ReleaseTarget, Settings};
use tenure_backend::{Backend, ClaimId, Clock, Instant, LockKey};
use tenure_testkit::{Chaos, Dice, FaultRates, FaultyBackend, Rule, check};
use tokio::task::JoinHandle;

use crate::actor::Actor;
use crate::calm::{self, Death, nothing_is_left, watch_over};
use crate::log::Note;
use crate::spy::{Spy, Wire};
use crate::world::{Climate, World};

/// How much later than a lease's end a waiter may be served when the weather has ended: a poll, a backoff, an offer.
const GRACE: Duration = Duration::from_millis(2_500);
/// How long one turn of an actor takes at the most, once it holds.
const TURN: Duration = Duration::from_millis(700);

/// What a seed led to.
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    world: Arc<World>,
}

impl Outcome {
    /// Everything that happened, in order.
    pub(crate) fn log(&self) -> String {
        self.world.text()
    }
}

/// Runs the world of that seed.
pub(crate) fn run(seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    let world = runtime.block_on(live(seed));
    // The guards of a client that died hold on to the world, as it holds on to them.
    world.holds.lock().clear();
    drop(runtime);
    judge(&world);
    Outcome {
        violations: world.violations(),
        world,
    }
}

async fn live(seed: u64) -> Arc<World> {
    let mut dice = Dice::new(seed);
    let clients = usize::try_from(2 + dice.below(4)).unwrap_or(2);
    let weathers: Vec<FaultRates> = (0..clients).map(|_| weather(&mut dice)).collect();
    let world = World::new(clients, climate(&weathers, &mut dice));
    let keys: Vec<(LockKey, u64)> = (0..1 + dice.below(3))
        .map(|n| (LockKey::new(format!("k{n}")).expect("a good key"), dice.below(3)))
        .collect();
    let made: Vec<Client> = (0..clients)
        .map(|number| client(&world, number, weathers[number], &mut dice))
        .collect();
    let mut actors: Vec<(usize, JoinHandle<()>)> = Vec::new();
    for (number, client) in made.iter().enumerate() {
        for _ in 0..1 + dice.below(3) {
            let actor = Actor {
                world: world.clone(),
                client: client.clone(),
                number,
                owner: actors.len() as u64 + 1,
                keys: keys.clone(),
                dice: Dice::new(dice.roll()),
            };
            actors.push((number, tokio::spawn(actor.run(1 + dice.below(4)))));
        }
    }
    let operator = world.climate.purge.then(|| {
        let dice = Dice::new(dice.roll());
        tokio::spawn(purge(made.clone(), keys.clone(), dice))
    });
    let killed = strike(&world, &made, &keys, &mut dice).await;
    if let Some(operator) = operator {
        operator.abort();
    }
    for (number, actor) in &actors {
        if Some(*number) == killed {
            actor.abort();
        }
    }
    world.calm_down();
    let death = killed.map(|client| Death {
        client,
        at: world.now(),
    });
    let names: Vec<LockKey> = keys.iter().map(|(key, _)| key.clone()).collect();
    let watch = tokio::spawn(watch_over(world.clone(), names.clone(), death));
    // Every turn that is left may be served one after the other, behind a dead holder's lease.
    let limit =
        world.climate.longest_lease() * 2 + GRACE + TURN * u32::try_from(actors.len()).unwrap_or(0) * 4;
    let ended = async {
        for (_, actor) in &mut actors {
            if let Err(error) = actor.await
                && error.is_panic()
            {
                world.violated("panic", error.to_string());
            }
        }
    };
    if tokio::time::timeout(limit, ended).await.is_err() {
        let rule = if killed.is_some() { "L1 or L2" } else { "L2" };
        world.violated(rule, "a task is stuck though all is calm");
        return world;
    }
    watch.abort();
    settle(&world, &made, killed, &names).await;
    world
}

fn weather(dice: &mut Dice) -> FaultRates {
    match dice.below(4) {
        0 => FaultRates::NONE,
        1 => FaultRates::HIGH,
        2 => FaultRates {
            delay: Duration::from_millis(20),
            repeats: 40,
            ..FaultRates::HIGH
        },
        // Requests and answers are lost, but no wake-up.
        _ => FaultRates {
            fails_before: 25,
            loses_wake: 0,
            spurious_wakes: 0,
            ..FaultRates::HIGH
        },
    }
}

fn climate(weathers: &[FaultRates], dice: &mut Dice) -> Climate {
    let ms = Duration::from_millis;
    let (lease, lease_step) = if dice.chance(75) {
        (ms(200), ms(100))
    } else {
        (ms(1_000), ms(600))
    };
    let hold_ms = if dice.chance(70) { 500 } else { 25 };
    let purge = dice.chance(20);
    Climate {
        lease,
        lease_step,
        // Under an operator who never stops, locks are held so briefly that they are handed on in memory.
        hold_ms: if purge { 15 } else { hold_ms },
        verifies: if purge { 50 } else { 15 },
        loses_wakes: weathers.iter().any(|weather| weather.loses_wake > 0),
        purge,
    }
}

fn client(world: &Arc<World>, number: usize, weather: FaultRates, dice: &mut Dice) -> Client {
    let clock: Arc<dyn Clock> = Arc::new(world.bodies[number].clock.clone());
    let spy = Spy {
        world: world.clone(),
        client: number,
        stores: world
            .stores
            .iter()
            .map(|store| store.client(clock.clone()))
            .collect(),
    };
    let calm: Arc<dyn Backend> = Arc::new(FaultyBackend::new(spy));
    let weather = Arc::new(Chaos::new(calm.clone(), dice.roll(), weather));
    let profile = weather.profile().clone();
    let wire = Wire {
        world: world.clone(),
        client: number,
        weather,
        calm,
        dice: Mutex::new(Dice::new(dice.roll())),
    };
    let settings = seeded(Settings::default().label(calm::label(number)), name(dice));
    let wire = FaultyBackend::new(wire).with_profile(profile);
    Client::new(Arc::new(wire), settings)
}

/// Lets misfortune happen for a while; who died of it.
async fn strike(
    world: &Arc<World>,
    clients: &[Client],
    keys: &[(LockKey, u64)],
    dice: &mut Dice,
) -> Option<usize> {
    let ms = |dice: &mut Dice, most| Duration::from_millis(dice.below(most));
    let mut loses_data = dice.chance(15);
    for _ in 0..dice.below(6) {
        // sleep: time is paused, and this is fate's.
        tokio::time::sleep(ms(dice, 500)).await;
        let number = usize::try_from(dice.below(clients.len() as u64)).unwrap_or(0);
        match dice.below(5) {
            0 | 1 => world.pause(number, ms(dice, 1_500)),
            2 => world.suspend(number, ms(dice, 1_500)),
            3 => world.stop_store(ms(dice, 800), std::mem::take(&mut loses_data)),
            _ => evict(&clients[number], keys, dice).await,
        }
    }
    // sleep: time is paused, and this is fate's.
    tokio::time::sleep(ms(dice, 600)).await;
    let killed = dice
        .chance(40)
        .then(|| usize::try_from(dice.below(clients.len() as u64)).unwrap_or(0));
    killed.inspect(|number| world.kill(*number))
}

/// An operator in bad weather: whatever comes of it.
async fn evict(client: &Client, keys: &[(LockKey, u64)], dice: &mut Dice) {
    let key = &keys[usize::try_from(dice.below(keys.len() as u64)).unwrap_or(0)].0;
    let evict = client.evict(ReleaseTarget::All(key.clone()));
    let _ = tokio::time::timeout(Duration::from_millis(300), evict).await;
}

/// An operator who does nothing else.
async fn purge(clients: Vec<Client>, keys: Vec<(LockKey, u64)>, mut dice: Dice) {
    loop {
        // sleep: time is paused, and this is the operator's.
        tokio::time::sleep(Duration::from_millis(1 + dice.below(30))).await;
        let number = usize::try_from(dice.below(clients.len() as u64)).unwrap_or(0);
        evict(&clients[number], &keys, &mut dice).await;
    }
}

/// Closes every client that lives: nothing of it is left in the store then, and nothing of anybody after a lease.
async fn settle(world: &Arc<World>, clients: &[Client], killed: Option<usize>, keys: &[LockKey]) {
    for (number, client) in clients.iter().enumerate() {
        world.say(Note::Closing { client: number });
        if Some(number) != killed
            && let Err(error) = client.close(Duration::from_secs(10)).await
        {
            world.violated("L4", format!("client {number} could not be closed: {error:?}"));
        }
    }
    let excused = |label: &str, id: ClaimId| {
        let of = |number: usize| calm::label(number) == label;
        let claims = world.claims.lock();
        let is_older = |moment: Option<Instant>| claims.is_older(id, moment);
        // A client whose clock jumps while it gives a claim back stops when the lease is over by that clock, before the
        // store's end of it.
        let jumped = |n: usize| of(n) && is_older(*world.bodies[n].jumped.lock());
        // A store that lost its data has forgotten which claims have ended: a request from before that is delivered again
        // places one anew. Nobody believes in it.
        is_older(world.lost_data_at()) || killed.is_some_and(of) || (0..clients.len()).any(jumped)
    };
    nothing_is_left(world, keys, excused).await;
    // sleep: time is paused, and this is the lease of whoever could not give its claims back, or of its last request.
    tokio::time::sleep(calm::IN_FLIGHT + world.climate.longest_lease()).await;
    nothing_is_left(world, keys, |_, _| false).await;
}

/// The checker's judgement; what spans the loss of the store's data proves nothing of V3.
fn judge(world: &World) {
    let Err(found) = check(world.history()) else {
        return;
    };
    for violation in found {
        let spans = world.lost_data_at().is_some_and(|lost| {
            let before = violation.events.iter().any(|event| event.at < lost);
            before && violation.events.iter().any(|event| event.at >= lost)
        });
        if !(spans && violation.rule == Rule::V3) {
            world.convict(violation.to_string());
        }
    }
}

/// What the client's name and jitter come from.
fn name(dice: &mut Dice) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&dice.roll().to_le_bytes());
    name[8..].copy_from_slice(&dice.roll().to_le_bytes());
    name
}
