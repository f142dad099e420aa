//! Simulates clients that poll only after a wake-up or after `poll_after`. None may sleep long while its key is free.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Fairness, Instant, Mode, TURN};
use tenure_testkit::Dice;

use super::fixture::{Fixture, Watch, permits};

const STEP: Duration = Duration::from_millis(1);

/// The longest time for which the key may be free while a client waits: more than the 10 ms for which a freed key is
/// reserved for a woken client, far less than a lease.
const LONGEST_IDLE: Duration = TURN.saturating_mul(2);

struct Client {
    number: u8,
    /// True if this client, once it waits, never polls and never withdraws.
    is_stuck: bool,
    grants: u32,
    state: ClientState,
}

enum ClientState {
    Resting {
        until: Instant,
    },
    Waiting {
        claim: Arc<Claim>,
        watch: Watch,
        poll_at: Instant,
    },
    Holding {
        claim: Arc<Claim>,
        until: Instant,
    },
}

struct Simulation {
    fixture: Fixture,
    dice: Dice,
    modes: Vec<Mode>,
    fairness: Fairness,
    /// A client pauses for less than this between an unlock and its next lock, in milliseconds.
    max_rest: u64,
    clients: Vec<Client>,
    idle_since: Instant,
}

impl Simulation {
    fn new(seed: u64, clients: u8, stuck: u8, modes: &[Mode], fairness: Fairness) -> Self {
        let fixture = Fixture::new();
        let now = fixture.now;
        let clients = (0..clients).map(|number| Client {
            number,
            is_stuck: number < stuck,
            grants: 0,
            state: ClientState::Resting { until: now },
        });
        Simulation {
            dice: Dice::new(seed),
            modes: modes.to_vec(),
            fairness,
            max_rest: 3,
            clients: clients.collect(),
            idle_since: now,
            fixture,
        }
    }

    fn random_time(&mut self, most_ms: u64) -> Instant {
        self.fixture.now + Duration::from_millis(self.dice.below(most_ms))
    }

    /// Polls the client's claim. A client that does not watch yet polls a second time if the first poll is not
    /// granted, and starts to watch if the second is not granted either.
    fn poll(&mut self, at: usize, claim: Arc<Claim>, watch: Option<Watch>) {
        let reply = [true, false]
            .into_iter()
            .find_map(|first| match self.fixture.acquire(&claim).unwrap() {
                AcquireReply::Waiting { .. } if first && watch.is_none() => None,
                reply => Some(reply),
            });
        self.clients[at].state = match reply {
            Some(AcquireReply::Granted(_)) => {
                self.clients[at].grants += 1;
                if let Some(watch) = watch {
                    self.fixture.unwatch(&claim, watch);
                }
                let until = self.random_time(5);
                ClientState::Holding { claim, until }
            }
            Some(AcquireReply::Waiting { poll_after, .. }) => ClientState::Waiting {
                watch: watch.unwrap_or_else(|| self.fixture.watch(&claim)),
                claim,
                poll_at: self.fixture.now + poll_after,
            },
            reply => panic!("the reply to {:?} is {reply:?}", claim.at),
        };
    }

    fn act(&mut self, at: usize) {
        let now = self.fixture.now;
        let resting = ClientState::Resting { until: now };
        match std::mem::replace(&mut self.clients[at].state, resting) {
            ClientState::Resting { until } if until <= now => {
                let mode = self.modes[usize::try_from(self.dice.below(self.modes.len() as u64)).unwrap()];
                let claim = self
                    .fixture
                    .claim(self.clients[at].number, "k", mode, self.fairness);
                self.poll(at, claim, None);
            }
            ClientState::Waiting {
                claim,
                watch,
                poll_at,
            } if !self.clients[at].is_stuck && (watch.woke() || poll_at <= now) => {
                if self.dice.chance(2) {
                    // With a chance of 2 % the client stops waiting instead of polling.
                    self.fixture.release(&claim);
                    self.fixture.unwatch(&claim, watch);
                } else {
                    self.poll(at, claim, Some(watch));
                }
            }
            ClientState::Holding { claim, until } if until <= now => {
                self.fixture.release(&claim);
                let until = self.random_time(self.max_rest);
                self.clients[at].state = ClientState::Resting { until };
            }
            state => self.clients[at].state = state,
        }
    }

    fn step(&mut self) {
        let mut order: Vec<_> = (0..self.clients.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, usize::try_from(self.dice.below(at as u64 + 1)).unwrap());
        }
        order.into_iter().for_each(|at| self.act(at));
        let held = self
            .clients
            .iter()
            .any(|client| matches!(client.state, ClientState::Holding { .. }));
        let waits = |client: &Client| !client.is_stuck && matches!(client.state, ClientState::Waiting { .. });
        if held || !self.clients.iter().any(waits) {
            self.idle_since = self.fixture.now;
        }
        let idle = self.fixture.now - self.idle_since;
        assert!(
            idle <= LONGEST_IDLE,
            "clients have waited for {idle:?} while the key was free"
        );
        self.fixture.pass(STEP);
    }
}

fn families() -> [Vec<Mode>; 3] {
    [
        vec![Mode::Exclusive],
        vec![Mode::Read, Mode::Read, Mode::Write],
        vec![permits(1, 3), permits(2, 3), permits(3, 3)],
    ]
}

#[test]
fn no_client_sleeps_while_its_key_is_free() {
    for (seed, modes) in (0..).zip(families()) {
        for fairness in [Fairness::Unfair, Fairness::Fifo] {
            let mut simulation = Simulation::new(seed, 5, 0, &modes, fairness);
            (0..5_000).for_each(|_| simulation.step());
        }
    }
}

#[test]
fn a_woken_client_that_never_polls_delays_others_briefly() {
    for (seed, modes) in (0..).zip(families()) {
        let mut simulation = Simulation::new(seed, 5, 1, &modes, Fairness::Unfair);
        // With pauses this long, the client that never polls is often the only waiter. So no other client finds the
        // key free by chance.
        simulation.max_rest = 100;
        (0..5_000).for_each(|_| simulation.step());
    }
}

#[test]
fn every_client_gets_at_least_half_its_share_of_an_unfair_key() {
    let mut simulation = Simulation::new(1, 8, 0, &[Mode::Exclusive], Fairness::Unfair);
    (0..10_000).for_each(|_| simulation.step());
    let grants: Vec<_> = simulation.clients.iter().map(|client| client.grants).collect();
    let share = grants.iter().sum::<u32>() / 8;
    assert!(
        share > 100 && grants.iter().all(|grants| *grants >= share / 2),
        "{grants:?}"
    );
}
