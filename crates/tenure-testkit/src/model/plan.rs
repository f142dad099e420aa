//! Steps of a random walk, chosen by a seed.

use std::time::Duration;

use tenure_backend::{Fairness, Mode, Phase, Profile};

use crate::Dice;
use crate::suite::{Fixture, permits};

pub(super) const CLIENTS: usize = 3;
/// Number of keys that the clients share.
pub(super) const KEYS: usize = 2;
/// Number of slots. A slot holds a claim for later steps; a claim that is replaced in its slot is left to expire.
pub(super) const SLOTS: usize = 6;
const STEPS: usize = 40;

#[derive(Clone, Copy, Debug)]
pub(super) struct ClaimPlan {
    /// Slot for the claim, by which later steps refer to it.
    pub(super) slot: usize,
    pub(super) mode: Mode,
    pub(super) fairness: Fairness,
    pub(super) lease: Duration,
    pub(super) grants: u32,
    /// Time from the request to the claim's `not_after`. `None`: the request is sent later than `not_after`.
    pub(super) ahead: Option<Duration>,
}

/// Step of a walk. A step is skipped if its slot has no claim.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Place {
        client: usize,
        key: usize,
        plan: ClaimPlan,
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
        downgrade: bool,
    },
    Release {
        slot: usize,
        is_withdrawal: bool,
        successor: Option<ClaimPlan>,
    },
    /// Releases a claim and names an existing claim as its successor, if both have the same client and key.
    HandOver {
        slot: usize,
        to: usize,
    },
    Evict {
        slot: usize,
        with_cooldown: bool,
    },
    EvictAll {
        key: usize,
        with_cooldown: bool,
    },
    Pass(Duration),
}

struct StepGenerator {
    dice: Dice,
    served: Vec<(Mode, Fairness)>,
    /// For each key, a mode of the lock kind that most of the key's claims have. Some claims have another kind, to
    /// cause `Mismatch` errors.
    preferred: [Mode; KEYS],
    /// The short and the long lease that claims and renewals request.
    leases: [Duration; 2],
}

/// Returns the steps of a seed, with modes that the fixture's store serves.
pub(super) fn plan(seed: u64, fixture: &Fixture) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    let served = served(fixture.profile());
    assert!(!served.is_empty(), "a store serves some kind of lock");
    let preferred = [(); KEYS].map(|()| pick(&mut dice, &served).0);
    let mut generator = StepGenerator {
        dice,
        served,
        preferred,
        leases: [fixture.short_lease(), fixture.long_lease()],
    };
    (0..STEPS).map(|_| generator.step()).collect()
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

impl StepGenerator {
    fn step(&mut self) -> Step {
        let slot = self.slot();
        match self.dice.below(100) {
            0..=31 => {
                let key = index(&mut self.dice, KEYS);
                Step::Place {
                    client: index(&mut self.dice, CLIENTS),
                    key,
                    plan: self.claim_plan(key),
                }
            }
            32..=49 => Step::Poll { slot },
            50..=62 => Step::Renew {
                slot,
                only: pick(&mut self.dice, &[Phase::Waiting, Phase::Granted, Phase::Either]),
                lease: self.lease(),
                shorten_only: self.dice.chance(25),
                raise: self.dice.chance(20),
                downgrade: self.dice.chance(30),
            },
            63..=77 => Step::Release {
                slot,
                is_withdrawal: self.dice.chance(30),
                successor: self.dice.chance(35).then(|| {
                    let key = index(&mut self.dice, KEYS);
                    self.claim_plan(key)
                }),
            },
            78..=80 => Step::HandOver {
                slot,
                to: self.slot(),
            },
            81..=86 => Step::Evict {
                slot,
                with_cooldown: self.dice.chance(50),
            },
            87..=88 => Step::EvictAll {
                key: index(&mut self.dice, KEYS),
                with_cooldown: self.dice.chance(50),
            },
            _ => Step::Pass(Duration::from_millis(pick(
                &mut self.dice,
                &[5, 20, 250, 250, 600, 600, 1_200],
            ))),
        }
    }

    fn claim_plan(&mut self, key: usize) -> ClaimPlan {
        let preferred = self.preferred[key].kind();
        let any = self.dice.chance(10);
        let fits: Vec<(Mode, Fairness)> = self
            .served
            .iter()
            .copied()
            .filter(|(mode, _)| any || mode.kind() == preferred)
            .collect();
        let (mode, fairness) = pick(&mut self.dice, &fits);
        ClaimPlan {
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
        let preferred = [Mode::Exclusive; KEYS];
        let draw = |dice: Dice| {
            let mut generator = StepGenerator {
                dice,
                served: served.to_vec(),
                preferred,
                leases: [Duration::ZERO; 2],
            };
            (0..200)
                .map(|_| format!("{:?}", generator.step()))
                .collect::<Vec<_>>()
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
