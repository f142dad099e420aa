//! Keys and leases that the workers of a run use.

use std::num::NonZeroU32;
use std::time::Duration;

use tenure::backend::Fairness;
use tenure::{Kind, Mode, Profile, Settings};
use tenure_testkit::Dice;

/// Key of a run. All locks of a key have the same fairness: a local hand-over between unfair locks may overtake a fair
/// waiter, so the order of waiters on a mixed key could not be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    kind: Kind,
    pub(crate) fair: bool,
}

const fn key(name: &'static str, kind: Kind, fair: bool) -> Key {
    Key { name, kind, fair }
}

pub(crate) const KEYS: [Key; 10] = [
    key("plain-0", Kind::Mutex, false),
    key("plain-1", Kind::Mutex, false),
    key("plain-2", Kind::Mutex, false),
    key("fair-0", Kind::Mutex, true),
    key("fair-1", Kind::Mutex, true),
    key("fair-2", Kind::Mutex, true),
    key("shared", Kind::ReadWrite, false),
    key("shared-fair", Kind::ReadWrite, true),
    key("permits", Kind::Semaphore { of: PERMITS }, false),
    key("permits-fair", Kind::Semaphore { of: PERMITS }, true),
];

const PERMITS: NonZeroU32 = NonZeroU32::new(3).expect("three is more than none");

/// The leases of a run, the longest last.
pub(crate) fn leases(profile: &Profile) -> [Duration; 3] {
    match profile.store {
        // A lease has whole seconds there, and must outlive the election of a leader.
        "etcd" => [5, 6, 8].map(Duration::from_secs),
        // The death of a leader costs 6 s, and no check may be answered for two sixths of a lease before it.
        "zookeeper" => [8, 12, 20].map(Duration::from_secs),
        _ => [500, 1_000, 2_000].map(Duration::from_millis),
    }
}

pub(crate) fn longest_lease(profile: &Profile) -> Duration {
    leases(profile)[2]
}

/// The longest time for which the store keeps a claim after the death of its client.
pub(crate) fn longest_stay(profile: &Profile) -> Duration {
    match profile.store {
        // A client with the most sessions open puts a claim on a longer one, as on the first, for which it asks by itself.
        "zookeeper" => Settings::DEFAULT_LEASE,
        _ => longest_lease(profile),
    }
}

impl Key {
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

    pub(crate) fn choose_mode(&self, dice: &mut Dice) -> Mode {
        let take = 1 + dice.below(PERMITS.get().into()) as u32;
        self.mode(dice.chance(40), NonZeroU32::new(take).unwrap_or(PERMITS))
    }

    fn mode(&self, writes: bool, take: NonZeroU32) -> Mode {
        match self.kind {
            Kind::Mutex => Mode::Exclusive,
            Kind::ReadWrite if writes => Mode::Write,
            Kind::ReadWrite => Mode::Read,
            Kind::Semaphore { of } => Mode::Permits { take, of },
        }
    }
}

/// Returns whether the mode excludes all other holders. Only holders in such a mode write to resources.
pub(crate) fn is_alone(mode: Mode) -> bool {
    matches!(mode, Mode::Exclusive | Mode::Write)
}
