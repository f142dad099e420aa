//! Clients that ask again only when they are woken or told to poll: nobody sleeps beside a key that is free.

use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{AcquireReply, Claim, Fairness, Instant, Mode, TURN};
use tenure_testkit::Dice;

use super::trial::{Trial, Watch, permits};

const STEP: Duration = Duration::from_millis(1);

/// Longer than a key is kept and a poll takes, and far shorter than any lease.
const LONGEST_IDLE: Duration = TURN.saturating_mul(2);

struct Client {
    number: u8,
    /// Once it waits it never asks again, and does not go away either.
    deaf: bool,
    grants: u32,
    doing: Doing,
}

enum Doing {
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

struct Crowd {
    trial: Trial,
    dice: Dice,
    modes: Vec<Mode>,
    fairness: Fairness,
    /// For how many milliseconds a client rests at the most before it locks again.
    rest: u64,
    clients: Vec<Client>,
    idle_since: Instant,
}

impl Crowd {
    fn new(seed: u64, clients: u8, deaf: u8, modes: &[Mode], fairness: Fairness) -> Self {
        let trial = Trial::new();
        let now = trial.now;
        let clients = (0..clients).map(|number| Client {
            number,
            deaf: number < deaf,
            grants: 0,
            doing: Doing::Resting { until: now },
        });
        Crowd {
            dice: Dice::new(seed),
            modes: modes.to_vec(),
            fairness,
            rest: 3,
            clients: clients.collect(),
            idle_since: now,
            trial,
        }
    }

    fn soon(&mut self, most_ms: u64) -> Instant {
        self.trial.now + Duration::from_millis(self.dice.below(most_ms))
    }

    /// The client's claim asks, and watches before it asks again, as the engine does.
    fn ask(&mut self, at: usize, claim: Arc<Claim>, watch: Option<Watch>) {
        let asked = [true, false].into_iter().find_map(|first| {
            let standing = self.trial.acquire(&claim).unwrap();
            match standing {
                AcquireReply::Waiting { .. } if first && watch.is_none() => None,
                standing => Some(standing),
            }
        });
        self.clients[at].doing = match asked {
            Some(AcquireReply::Granted(_)) => {
                self.clients[at].grants += 1;
                if let Some(watch) = watch {
                    self.trial.unwatch(&claim, watch);
                }
                let until = self.soon(5);
                Doing::Holding { claim, until }
            }
            Some(AcquireReply::Waiting { poll_after, .. }) => Doing::Waiting {
                watch: watch.unwrap_or_else(|| self.trial.watch(&claim)),
                claim,
                poll_at: self.trial.now + poll_after,
            },
            standing => panic!("{:?} is {standing:?}", claim.at),
        };
    }

    fn act(&mut self, at: usize) {
        let now = self.trial.now;
        let resting = Doing::Resting { until: now };
        match std::mem::replace(&mut self.clients[at].doing, resting) {
            Doing::Resting { until } if until <= now => {
                let mode = self.modes[usize::try_from(self.dice.below(self.modes.len() as u64)).unwrap()];
                let claim = self
                    .trial
                    .claim(self.clients[at].number, "k", mode, self.fairness);
                self.ask(at, claim, None);
            }
            Doing::Waiting {
                claim,
                watch,
                poll_at,
            } if !self.clients[at].deaf && (watch.woke() || poll_at <= now) => {
                if self.dice.chance(2) {
                    // It gives up, just as it might have gone.
                    self.trial.release(&claim);
                    self.trial.unwatch(&claim, watch);
                } else {
                    self.ask(at, claim, Some(watch));
                }
            }
            Doing::Holding { claim, until } if until <= now => {
                self.trial.release(&claim);
                let until = self.soon(self.rest);
                self.clients[at].doing = Doing::Resting { until };
            }
            doing => self.clients[at].doing = doing,
        }
    }

    /// A round in which every client has its turn, in an order of chance.
    fn step(&mut self) {
        let mut order: Vec<_> = (0..self.clients.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, usize::try_from(self.dice.below(at as u64 + 1)).unwrap());
        }
        order.into_iter().for_each(|at| self.act(at));
        let held = self
            .clients
            .iter()
            .any(|client| matches!(client.doing, Doing::Holding { .. }));
        let waits = |client: &Client| !client.deaf && matches!(client.doing, Doing::Waiting { .. });
        if held || !self.clients.iter().any(waits) {
            self.idle_since = self.trial.now;
        }
        let idle = self.trial.now - self.idle_since;
        assert!(
            idle <= LONGEST_IDLE,
            "clients have slept for {idle:?} beside a free key"
        );
        self.trial.pass(STEP);
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
fn no_client_sleeps_beside_a_free_key() {
    for (seed, modes) in (0..).zip(families()) {
        for fairness in [Fairness::Unfair, Fairness::Fifo] {
            let mut crowd = Crowd::new(seed, 5, 0, &modes, fairness);
            (0..5_000).for_each(|_| crowd.step());
        }
    }
}

#[test]
fn a_client_that_is_woken_and_never_asks_holds_up_nobody_for_long() {
    for (seed, modes) in (0..).zip(families()) {
        let mut crowd = Crowd::new(seed, 5, 1, &modes, Fairness::Unfair);
        // At times all but the deaf one rest, so that nobody comes by and finds the key free.
        crowd.rest = 100;
        (0..5_000).for_each(|_| crowd.step());
    }
}

#[test]
fn every_client_gets_at_least_half_its_share_of_an_unfair_key() {
    let mut crowd = Crowd::new(1, 8, 0, &[Mode::Exclusive], Fairness::Unfair);
    (0..10_000).for_each(|_| crowd.step());
    let grants: Vec<_> = crowd.clients.iter().map(|client| client.grants).collect();
    let share = grants.iter().sum::<u32>() / 8;
    assert!(
        share > 100 && grants.iter().all(|grants| *grants >= share / 2),
        "{grants:?}"
    );
}
