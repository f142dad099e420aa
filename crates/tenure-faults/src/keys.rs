//! What is locked in a run. Who locks what, and when, is the workers'.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure::{Fairness, Mode, Profile};
use tenure_testkit::Dice;

/// A key of the run: what it is, and in which order it is served. No key is served in both: a hand-over in memory may pass
/// a fair waiter by, so that its order could not be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    form: Form,
    pub(crate) fair: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Mutex,
    ReadWrite,
    Semaphore,
}

const fn key(name: &'static str, form: Form, fair: bool) -> Key {
    Key { name, form, fair }
}

const KEYS: [Key; 10] = [
    key("plain-0", Form::Mutex, false),
    key("plain-1", Form::Mutex, false),
    key("plain-2", Form::Mutex, false),
    key("fair-0", Form::Mutex, true),
    key("fair-1", Form::Mutex, true),
    key("fair-2", Form::Mutex, true),
    key("shared", Form::ReadWrite, false),
    key("shared-fair", Form::ReadWrite, true),
    key("permits", Form::Semaphore, false),
    key("permits-fair", Form::Semaphore, true),
];

/// How many permits a semaphore has.
const PERMITS: NonZeroU32 = NonZeroU32::new(3).expect("three is more than none");

/// The leases that workers ask for, in milliseconds.
pub(crate) const LEASES_MS: [u64; 3] = [500, 1_000, 2_000];

/// The longest of them.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(2);

impl Key {
    /// Those that a store of that profile serves.
    pub(crate) fn served(profile: &Profile) -> Vec<Key> {
        let serves = |key: &Key| {
            let fairness = if key.fair {
                Fairness::Fifo
            } else {
                Fairness::Unfair
            };
            profile.serves(key.mode(true, PERMITS), fairness)
        };
        KEYS.into_iter().filter(serves).collect()
    }

    /// All there are.
    pub(crate) fn all() -> impl Iterator<Item = Key> {
        KEYS.into_iter()
    }

    /// How a task wants to hold it: a mutex has one way only.
    pub(crate) fn choose_mode(&self, dice: &mut Dice) -> Mode {
        let take = 1 + dice.below(PERMITS.get().into()) as u32;
        self.mode(dice.chance(40), NonZeroU32::new(take).unwrap_or(PERMITS))
    }

    fn mode(&self, writes: bool, take: NonZeroU32) -> Mode {
        match self.form {
            Form::Mutex => Mode::Exclusive,
            Form::ReadWrite if writes => Mode::Write,
            Form::ReadWrite => Mode::Read,
            Form::Semaphore => Mode::Permits { take, of: PERMITS },
        }
    }
}

/// Whether a holder is alone, so that it may write.
pub(crate) fn is_alone(mode: Mode) -> bool {
    matches!(mode, Mode::Exclusive | Mode::Write)
}
