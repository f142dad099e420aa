//! One seed's world from its making to its end, and the judgement on it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tenure::{Client, Holder, Settings};
use tenure_backend::{Backend, ClaimId, Clock, LockKey};
use tenure_testkit::{Chaos, Dice, Rule, Weather, check};
use tokio::task::JoinHandle;

use crate::actor::Actor;
use crate::calm::{self, Death, nothing_is_left, watch_over};
use crate::log::Note;
use crate::spy::{Spy, Wire};
use crate::world::World;

/// The longest lease that an actor asks for.
const LEASE: Duration = Duration::from_millis(700);
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
    let world = World::new(clients);
    let keys: Vec<(LockKey, u64)> = (0..1 + dice.below(3))
        .map(|n| (LockKey::new(format!("k{n}")).expect("a good key"), dice.below(3)))
        .collect();
    let made: Vec<Client> = (0..clients)
        .map(|number| client(&world, number, &mut dice))
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
    let killed = strike(&world, &made, &keys, &mut dice).await;
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
    let watch = tokio::spawn(watch_over(world.clone(), names.clone(), death, LEASE));
    // Every turn that is left may be served one after the other, behind a dead holder's lease.
    let limit = LEASE + GRACE + TURN * u32::try_from(actors.len()).unwrap_or(0) * 4;
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

fn client(world: &Arc<World>, number: usize, dice: &mut Dice) -> Client {
    let clock: Arc<dyn Clock> = Arc::new(world.bodies[number].clock.clone());
    let calm: Arc<dyn Backend> = Arc::new(Spy {
        world: world.clone(),
        client: number,
        stores: world
            .stores
            .iter()
            .map(|store| store.client(clock.clone()))
            .collect(),
    });
    let weather = match dice.below(3) {
        0 => Weather::CALM,
        1 => Weather::ROUGH,
        _ => Weather {
            delay: Duration::from_millis(20),
            repeats: 40,
            ..Weather::ROUGH
        },
    };
    let wire = Wire {
        world: world.clone(),
        client: number,
        weather: Arc::new(Chaos::new(calm.clone(), dice.roll(), weather)),
        calm,
        dice: Mutex::new(Dice::new(dice.roll())),
    };
    let mut settings = Settings::default().label(calm::label(number));
    settings.seed = Some(name(dice));
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
            _ => {
                let key = &keys[usize::try_from(dice.below(keys.len() as u64)).unwrap_or(0)].0;
                let evict = clients[number].evict(Holder::All(key.clone()));
                // An operator in bad weather: whatever comes of it.
                let _ = tokio::time::timeout(Duration::from_millis(300), evict).await;
            }
        }
    }
    // sleep: time is paused, and this is fate's.
    tokio::time::sleep(ms(dice, 600)).await;
    let killed = dice
        .chance(40)
        .then(|| usize::try_from(dice.below(clients.len() as u64)).unwrap_or(0));
    killed.inspect(|number| world.kill(*number))
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
    let epoch = world.epoch();
    let excused = |label: &str, id: ClaimId| {
        let of = |number: usize| calm::label(number) == label;
        // A client whose clock has jumped gives a release up when the lease is over by its own clock: before the store's.
        let jumped = (0..clients.len()).any(|n| world.bodies[n].jumped.load(Ordering::Relaxed) && of(n));
        // A store that lost its data has forgotten which claims have ended: a request from before that is delivered again
        // places one anew. Nobody believes in it.
        let forgotten = world.claims.lock().is_older_than(id, epoch);
        jumped || forgotten || killed.is_some_and(of)
    };
    nothing_is_left(world, keys, excused).await;
    // sleep: time is paused, and this is the lease of whoever could not give its claims back.
    tokio::time::sleep(LEASE).await;
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
