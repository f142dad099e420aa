//! Random plan of a task's next lock.

use std::time::Duration;

use tenure::Mode;
use tenure_testkit::Dice;

use crate::keys::Key;

/// How long a task waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Endless,
    Limit(Duration),
    None,
    /// The task drops the lock's future after this time.
    DroppedAfter(Duration),
}

/// Lock that a task acquires next, and what the task does then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockPlan {
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    pub(crate) patience: Patience,
    pub(crate) lease: Duration,
    pub(crate) renewed: bool,
    /// Whether the task acquires the lock again while it holds it.
    pub(crate) nests: bool,
    pub(crate) verifies: bool,
    /// Time between reading and writing the counter.
    pub(crate) write_delay: Duration,
    /// Time for which the task holds the lock after its work.
    pub(crate) extra_hold: Duration,
    /// True if the task calls `unlock`, false if it drops the guard.
    pub(crate) unlocks: bool,
}

impl LockPlan {
    pub(crate) fn make(keys: &[Key], leases: &[Duration; 3], dice: &mut Dice) -> LockPlan {
        let key = keys[dice.below(keys.len() as u64) as usize];
        let mode = key.choose_mode(dice);
        // A fair waiter keeps its place by polling within each lease. With short leases, a busy machine would cost
        // waiters their places.
        let leases = if key.fair { &leases[2..] } else { &leases[..] };
        let lease = leases[dice.below(leases.len() as u64) as usize];
        let millis = |dice: &mut Dice, bound| Duration::from_millis(dice.below(bound));
        let patience = match dice.below(10) {
            0 => Patience::None,
            1 => Patience::Limit(millis(dice, 300)),
            2 => Patience::DroppedAfter(millis(dice, 50)),
            _ => Patience::Endless,
        };
        let renewed = !dice.chance(10);
        // Some tasks hold their lock for 1.2 leases. In that time, a lease without renewals ends, and any other is
        // renewed several times.
        let extra_hold = match dice.below(60) {
            0 => lease.mul_f64(1.2),
            1..15 if !renewed => lease.mul_f64(1.2),
            1..12 => millis(dice, 100),
            _ => Duration::ZERO,
        };
        LockPlan {
            key,
            mode,
            patience,
            lease,
            renewed,
            // A semaphore is not re-entrant, so a nested acquire would wait for itself.
            nests: dice.chance(15) && !matches!(mode, Mode::Permits { .. }),
            verifies: dice.chance(10),
            write_delay: Duration::from_millis(2) + millis(dice, 8),
            extra_hold,
            unlocks: dice.chance(70),
        }
    }
}
