//! What a task asks for next: chance, and nothing else.

use std::time::Duration;

use tenure::Mode;
use tenure_testkit::Dice;

use crate::keys::{Key, LEASES_MS};

/// How long a task is ready to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Endless,
    Limit(Duration),
    None,
    /// It drops the future half-way.
    DroppedAfter(Duration),
}

/// One lock that a task wants, and what it will do with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) patience: Patience,
    pub(crate) lease: Duration,
    pub(crate) renewed: bool,
    /// Whether it takes the lock once more while it has it.
    pub(crate) nests: bool,
    pub(crate) verifies: bool,
    /// Between reading the counter and writing it.
    pub(crate) meanwhile: Duration,
    /// How much longer it holds.
    pub(crate) lingers: Duration,
    /// Whether it unlocks, or only drops the guard.
    pub(crate) unlocks: bool,
}

impl Wish {
    pub(crate) fn make(keys: &[Key], dice: &mut Dice) -> Wish {
        let key = keys[dice.below(keys.len() as u64) as usize];
        let mode = key.choose_mode(dice);
        // A waiter keeps its place in a queue by renewals: with short leases a busy machine would cost it that.
        let leases = if key.fair { &LEASES_MS[2..] } else { &LEASES_MS[..] };
        let lease = Duration::from_millis(leases[dice.below(leases.len() as u64) as usize]);
        let millis = |dice: &mut Dice, bound| Duration::from_millis(dice.below(bound));
        let patience = match dice.below(10) {
            0 => Patience::None,
            1 => Patience::Limit(millis(dice, 300)),
            2 => Patience::DroppedAfter(millis(dice, 50)),
            _ => Patience::Endless,
        };
        let renewed = !dice.chance(10);
        // Beyond the end of a lease that is not renewed, and over some renewals of one that is.
        let lingers = match dice.below(60) {
            0 => lease.mul_f64(1.2),
            1..15 if !renewed => lease.mul_f64(1.2),
            1..12 => millis(dice, 100),
            _ => Duration::ZERO,
        };
        Wish {
            key,
            mode,
            patience,
            lease,
            renewed,
            // A semaphore is not re-entrant: it would wait for itself.
            nests: dice.chance(15) && !matches!(mode, Mode::Permits { .. }),
            verifies: dice.chance(10),
            meanwhile: Duration::from_millis(2) + millis(dice, 8),
            lingers,
            unlocks: dice.chance(70),
        }
    }
}
