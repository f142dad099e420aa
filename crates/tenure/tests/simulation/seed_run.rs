//! Runs the simulation of one seed, and checks the result.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure::testing::seeded;
use tenure::{Client, ReleaseTarget, Settings};
use tenure_backend::{Backend, ClaimId, Clock, Instant, LockKey, Order};
use tenure_testkit::{Chaos, Dice, FaultRates, FaultyBackend, Rule, check};
use tokio::task::JoinHandle;

use crate::actor::Actor;
use crate::connection::{ClientConnection, StoreRecorder};
use crate::liveness::{self, Death, nothing_is_left, watch_over};
use crate::log::LogEntry;
use crate::simulation::{Parameters, Simulation};

/// Maximum time from the end of a lease until a waiter gets the lock, without faults: a backoff, a poll and an offer.
const GRACE: Duration = Duration::from_millis(2_500);
/// Maximum time from a grant to the end of its release by an actor (a task of a client).
const TURN: Duration = Duration::from_millis(700);

pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    sim: Arc<Simulation>,
}

impl Outcome {
    pub(crate) fn log(&self) -> String {
        self.sim.text()
    }
}

pub(crate) fn run(seed: u64) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    let sim = runtime.block_on(live(seed));
    // A dead client's guards and the simulation reference each other: breaks this cycle, which would leak.
    sim.holds.lock().clear();
    drop(runtime);
    judge(&sim);
    Outcome {
        violations: sim.violations(),
        sim,
    }
}

async fn live(seed: u64) -> Arc<Simulation> {
    let mut dice = Dice::new(seed);
    let clients = usize::try_from(2 + dice.below(4)).unwrap_or(2);
    let rates: Vec<FaultRates> = (0..clients).map(|_| fault_rates(&mut dice)).collect();
    let sim = Simulation::new(clients, parameters(&rates, &mut dice));
    let keys: Vec<(LockKey, u64)> = (0..1 + dice.below(3))
        .map(|n| (LockKey::new(format!("k{n}")).expect("a good key"), dice.below(3)))
        .collect();
    let made: Vec<Client> = (0..clients)
        .map(|number| client(&sim, number, rates[number], &mut dice))
        .collect();
    let mut actors: Vec<(usize, JoinHandle<()>)> = Vec::new();
    for (number, client) in made.iter().enumerate() {
        for _ in 0..1 + dice.below(3) {
            let actor = Actor {
                sim: sim.clone(),
                client: client.clone(),
                number,
                owner: actors.len() as u64 + 1,
                keys: keys.clone(),
                dice: Dice::new(dice.roll()),
            };
            actors.push((number, tokio::spawn(actor.run(1 + dice.below(4)))));
        }
    }
    let operator = sim.parameters.evict_constantly.then(|| {
        let dice = Dice::new(dice.roll());
        tokio::spawn(evict_constantly(made.clone(), keys.clone(), dice))
    });
    let killed = inject_faults(&sim, &made, &keys, &mut dice).await;
    if let Some(operator) = operator {
        operator.abort();
    }
    for (number, actor) in &actors {
        if Some(*number) == killed {
            actor.abort();
        }
    }
    sim.end_faults();
    let death = killed.map(|client| Death {
        client,
        at: sim.now(),
    });
    let names: Vec<LockKey> = keys.iter().map(|(key, _)| key.clone()).collect();
    let watch = tokio::spawn(watch_over(sim.clone(), names.clone(), death));
    // In the worst case, a dead holder's lease must end first, and then all actors hold one lock after another.
    let limit =
        sim.parameters.longest_lease() * 2 + GRACE + TURN * u32::try_from(actors.len()).unwrap_or(0) * 4;
    let ended = async {
        for (_, actor) in &mut actors {
            if let Err(error) = actor.await
                && error.is_panic()
            {
                sim.violated("panic", error.to_string());
            }
        }
    };
    if tokio::time::timeout(limit, ended).await.is_err() {
        let rule = if killed.is_some() { "L1 or L2" } else { "L2" };
        sim.violated(rule, "a task is stuck although the faults have ended");
        return sim;
    }
    watch.abort();
    settle(&sim, &made, killed, &names).await;
    sim
}

fn fault_rates(dice: &mut Dice) -> FaultRates {
    match dice.below(4) {
        0 => FaultRates::NONE,
        1 => FaultRates::HIGH,
        2 => FaultRates {
            delay: Duration::from_millis(20),
            repeats: 40,
            ..FaultRates::HIGH
        },
        // Requests and replies are lost, but wake-ups are not.
        _ => FaultRates {
            fails_before: 25,
            loses_wake: 0,
            spurious_wakes: 0,
            ..FaultRates::HIGH
        },
    }
}

fn parameters(rates: &[FaultRates], dice: &mut Dice) -> Parameters {
    let ms = Duration::from_millis;
    let (lease, lease_step) = if dice.chance(75) {
        (ms(200), ms(100))
    } else {
        (ms(1_000), ms(600))
    };
    let hold_ms = if dice.chance(70) { 500 } else { 25 };
    let evict_constantly = dice.chance(20);
    Parameters {
        lease,
        lease_step,
        // With constant evictions, locks are held for at most 15 ms, so that many are handed over locally.
        hold_ms: if evict_constantly { 15 } else { hold_ms },
        verifies: if evict_constantly { 50 } else { 15 },
        has_one_order: dice.chance(30),
        loses_wakes: rates.iter().any(|rates| rates.loses_wake > 0),
        evict_constantly,
    }
}

fn client(sim: &Arc<Simulation>, number: usize, rates: FaultRates, dice: &mut Dice) -> Client {
    let clock: Arc<dyn Clock> = Arc::new(sim.bodies[number].clock.clone());
    let spy = StoreRecorder {
        sim: sim.clone(),
        client: number,
        stores: sim
            .stores
            .iter()
            .map(|store| store.client(clock.clone()))
            .collect(),
    };
    let calm: Arc<dyn Backend> = Arc::new(FaultyBackend::new(spy));
    let faulty = Arc::new(Chaos::new(calm.clone(), dice.roll(), rates));
    let mut profile = faulty.profile().clone();
    if sim.parameters.has_one_order {
        for order in [
            &mut profile.mutex,
            &mut profile.read_write,
            &mut profile.semaphore,
        ] {
            *order = Order::FifoForBoth;
        }
    }
    let wire = ClientConnection {
        sim: sim.clone(),
        client: number,
        faulty,
        calm,
        dice: Mutex::new(Dice::new(dice.roll())),
        asked: Arc::default(),
        unconfirmed: Mutex::default(),
    };
    let settings = seeded(Settings::default().label(liveness::label(number)), name(dice));
    let wire = FaultyBackend::new(wire).with_profile(profile);
    Client::new(Arc::new(wire), settings)
}

/// Injects up to five faults, then perhaps kills a client, and returns this client.
async fn inject_faults(
    sim: &Arc<Simulation>,
    clients: &[Client],
    keys: &[(LockKey, u64)],
    dice: &mut Dice,
) -> Option<usize> {
    let ms = |dice: &mut Dice, most| Duration::from_millis(dice.below(most));
    let mut loses_data = dice.chance(15);
    for _ in 0..dice.below(6) {
        // sleep: advances paused time until the next fault.
        tokio::time::sleep(ms(dice, 500)).await;
        let number = usize::try_from(dice.below(clients.len() as u64)).unwrap_or(0);
        match dice.below(5) {
            0 | 1 => sim.pause(number, ms(dice, 1_500)),
            2 => sim.suspend(number, ms(dice, 1_500)),
            3 => sim.stop_store(ms(dice, 800), std::mem::take(&mut loses_data)),
            _ => evict(&clients[number], keys, dice).await,
        }
    }
    // sleep: advances paused time until the next fault.
    tokio::time::sleep(ms(dice, 600)).await;
    let killed = dice
        .chance(40)
        .then(|| usize::try_from(dice.below(clients.len() as u64)).unwrap_or(0));
    killed.inspect(|number| sim.kill(*number))
}

/// Evicts all holders of a random key, and ignores errors.
async fn evict(client: &Client, keys: &[(LockKey, u64)], dice: &mut Dice) {
    let key = &keys[usize::try_from(dice.below(keys.len() as u64)).unwrap_or(0)].0;
    let evict = client.evict(ReleaseTarget::All(key.clone()));
    let _ = tokio::time::timeout(Duration::from_millis(300), evict).await;
}

/// Evicts the holders of random keys, with pauses of 1 to 30 ms.
async fn evict_constantly(clients: Vec<Client>, keys: Vec<(LockKey, u64)>, mut dice: Dice) {
    loop {
        // sleep: advances paused time until the next eviction.
        tokio::time::sleep(Duration::from_millis(1 + dice.below(30))).await;
        let number = usize::try_from(dice.below(clients.len() as u64)).unwrap_or(0);
        evict(&clients[number], &keys, &mut dice).await;
    }
}

/// Closes all live clients, and checks that they left no claim in the store. One lease later, a dead client must have
/// none either.
async fn settle(sim: &Arc<Simulation>, clients: &[Client], killed: Option<usize>, keys: &[LockKey]) {
    for (number, client) in clients.iter().enumerate() {
        sim.say(LogEntry::Closing { client: number });
        if Some(number) != killed
            && let Err(error) = client.close(Duration::from_secs(10)).await
        {
            sim.violated("L4", format!("client {number} could not be closed: {error:?}"));
        }
    }
    let excused = |label: &str, id: ClaimId| {
        let of = |number: usize| liveness::label(number) == label;
        let claims = sim.claims.lock();
        let is_older = |moment: Option<Instant>| claims.is_older(id, moment);
        // A client retries a release until the lease is over on its clock. If that clock jumped, the claim may stay in the
        // store until the lease ends there.
        let jumped = |n: usize| of(n) && is_older(*sim.bodies[n].jumped.lock());
        // A store that lost its data does not know which claims have ended. If a request for an ended claim arrives late, the
        // store places the claim, and no guard releases it.
        is_older(sim.lost_data_at()) || killed.is_some_and(of) || (0..clients.len()).any(jumped)
    };
    nothing_is_left(sim, keys, excused).await;
    // sleep: advances paused time until claims without a release have expired.
    tokio::time::sleep(liveness::IN_FLIGHT + sim.parameters.longest_lease()).await;
    nothing_is_left(sim, keys, |_, _| false).await;
}

/// Runs the checker. Ignores V3 violations (order of tokens) whose events lie on both sides of a data loss.
fn judge(sim: &Simulation) {
    let Err(found) = check(sim.history()) else {
        return;
    };
    for violation in found {
        let spans = sim.lost_data_at().is_some_and(|lost| {
            let before = violation.events.iter().any(|event| event.at < lost);
            before && violation.events.iter().any(|event| event.at >= lost)
        });
        if !(spans && violation.rule == Rule::V3) {
            sim.add_violation(violation.to_string());
        }
    }
}

/// Random seed for a client's ID and jitter.
fn name(dice: &mut Dice) -> [u8; 16] {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&dice.roll().to_le_bytes());
    name[8..].copy_from_slice(&dice.roll().to_le_bytes());
    name
}
