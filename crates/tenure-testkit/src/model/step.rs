//! The steps of a random walk, drawn by a seed.

use std::time::Duration;

use tenure_backend::{Fairness, Mode, Phase, Profile};

use crate::Dice;
use crate::suite::{Trial, permits};

/// How many clients walk.
pub(super) const CLIENTS: usize = 3;
/// How many keys they share.
pub(super) const KEYS: usize = 2;
/// How many claims a walk can name at a time. A claim whose number was given to another is left to its lease.
pub(super) const SLOTS: usize = 6;
/// How many steps a walk has.
const STEPS: usize = 40;

/// What a new claim asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    /// Under which number the walk knows it.
    pub(super) slot: usize,
    pub(super) mode: Mode,
    pub(super) fairness: Fairness,
    pub(super) lease: Duration,
    /// How many tokens it asks for.
    pub(super) grants: u32,
    /// How far ahead its `not_after` lies; `None` if its request is on its way since before that.
    pub(super) ahead: Option<Duration>,
}

/// One step. One that names a claim which is not there is passed over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Place {
        client: usize,
        key: usize,
        ask: Ask,
    },
    Poll {
        slot: usize,
    },
    Renew {
        slot: usize,
        only: Phase,
        lease: Duration,
        shorten_only: bool,
        raise: bool,
    },
    Release {
        slot: usize,
        withdraws: bool,
        successor: Option<Ask>,
    },
    /// Releases a claim to one that is known already, if it is of the same client and key.
    HandOver {
        slot: usize,
        to: usize,
    },
    Evict {
        slot: usize,
        bars: bool,
    },
    EvictAll {
        key: usize,
        bars: bool,
    },
    Pass(Duration),
}

/// What the steps of one walk are drawn from.
struct Menu {
    dice: Dice,
    served: Vec<(Mode, Fairness)>,
    /// What each key is mostly used as; else every other claim would be a mismatch.
    usual: [Mode; KEYS],
    /// The suite's two leases.
    leases: [Duration; 2],
}

/// The steps of that seed, for the store of that trial.
pub(super) fn plan(seed: u64, trial: &Trial) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    let served = served(trial.profile());
    assert!(!served.is_empty(), "a store serves some kind of lock");
    let usual = [(); KEYS].map(|()| pick(&mut dice, &served).0);
    let mut menu = Menu {
        dice,
        served,
        usual,
        leases: [trial.brief(), trial.long()],
    };
    (0..STEPS).map(|_| menu.step()).collect()
}

fn served(profile: &Profile) -> Vec<(Mode, Fairness)> {
    let modes = [
        Mode::Exclusive,
        Mode::Read,
        Mode::Write,
        permits(1, 3),
        permits(2, 3),
        permits(1, 2),
    ];
    let both = |mode| [(mode, Fairness::Unfair), (mode, Fairness::Fifo)];
    let all = modes.into_iter().flat_map(both);
    all.filter(|(mode, fairness)| profile.serves(*mode, *fairness))
        .collect()
}

fn pick<T: Copy>(dice: &mut Dice, from: &[T]) -> T {
    from[index(dice, from.len())]
}

fn index(dice: &mut Dice, len: usize) -> usize {
    usize::try_from(dice.below(len as u64)).expect("an index below a length fits")
}

impl Menu {
    fn step(&mut self) -> Step {
        let slot = self.slot();
        match self.dice.below(100) {
            0..=31 => {
                let key = index(&mut self.dice, KEYS);
                Step::Place {
                    client: index(&mut self.dice, CLIENTS),
                    key,
                    ask: self.ask(key),
                }
            }
            32..=49 => Step::Poll { slot },
            50..=62 => Step::Renew {
                slot,
                only: pick(&mut self.dice, &[Phase::Waiting, Phase::Granted, Phase::Either]),
                lease: self.lease(),
                shorten_only: self.dice.chance(25),
                raise: self.dice.chance(20),
            },
            63..=77 => Step::Release {
                slot,
                withdraws: self.dice.chance(30),
                successor: self.dice.chance(35).then(|| {
                    let key = index(&mut self.dice, KEYS);
                    self.ask(key)
                }),
            },
            78..=80 => Step::HandOver {
                slot,
                to: self.slot(),
            },
            81..=86 => Step::Evict {
                slot,
                bars: self.dice.chance(50),
            },
            87..=88 => Step::EvictAll {
                key: index(&mut self.dice, KEYS),
                bars: self.dice.chance(50),
            },
            _ => Step::Pass(Duration::from_millis(pick(
                &mut self.dice,
                &[5, 20, 250, 250, 600, 600, 1_200],
            ))),
        }
    }

    fn ask(&mut self, key: usize) -> Ask {
        let usual = self.usual[key].kind();
        let any = self.dice.chance(10);
        let fits: Vec<(Mode, Fairness)> = self
            .served
            .iter()
            .copied()
            .filter(|(mode, _)| any || mode.kind() == usual)
            .collect();
        let (mode, fairness) = pick(&mut self.dice, &fits);
        Ask {
            slot: self.slot(),
            mode,
            fairness,
            lease: self.lease(),
            grants: pick(&mut self.dice, &[1, 1, 3, 64]),
            ahead: pick(
                &mut self.dice,
                &[None, Some(200), Some(5_000), Some(5_000), Some(10_000)],
            )
            .map(Duration::from_millis),
        }
    }

    fn lease(&mut self) -> Duration {
        pick(&mut self.dice, &self.leases)
    }

    fn slot(&mut self) -> usize {
        index(&mut self.dice, SLOTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_only_served_modes_and_follows_its_seed() {
        let mut dice = Dice::new(1);
        let served = [(Mode::Exclusive, Fairness::Unfair)];
        let usual = [Mode::Exclusive; KEYS];
        let draw = |dice: Dice| {
            let mut menu = Menu {
                dice,
                served: served.to_vec(),
                usual,
                leases: [Duration::ZERO; 2],
            };
            (0..200).map(|_| format!("{:?}", menu.step())).collect::<Vec<_>>()
        };
        let first = draw(dice.clone());
        assert_eq!(first, draw(dice.clone()));
        assert!(
            !first
                .iter()
                .any(|step| step.contains("mode: Read") || step.contains("Fifo"))
        );
        dice.roll();
        assert_ne!(first, draw(dice));
    }
}
