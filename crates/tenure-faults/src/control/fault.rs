//! Which faults there are, and how a seed chooses among them. Doing them is `misfortune.rs`'s.

use std::time::Duration;

use tenure_servers::{Data, Way};
use tenure_testkit::Dice;

/// Which faults a run may have. Where the store is a server, it and the links to it always suffer all there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Menu {
    /// Workers are paused for less than a lease, and killed.
    pub workers: bool,
    /// Workers are paused for longer than their lease, between reading and writing.
    pub stalls: bool,
    /// Holders are killed once all else is calm, to see how soon others have their locks.
    pub successions: bool,
}

impl Menu {
    /// Fair weather.
    pub const NOTHING: Menu = Menu {
        workers: false,
        stalls: false,
        successions: false,
    };
    /// Pauses beyond the lease alone.
    pub const STALLS: Menu = Menu {
        stalls: true,
        ..Menu::NOTHING
    };
    /// All there are.
    pub const ALL: Menu = Menu {
        workers: true,
        stalls: true,
        successions: true,
    };
}

/// Something that befalls a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// It is stopped for less than its lease.
    Pause(Duration),
    /// It is stopped between reading a counter and writing it, until another has written.
    Stall,
    /// It is killed, and another takes its place.
    Kill,
}

/// Something that befalls the link between a worker and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cable {
    /// What is sent arrives so much later.
    Delay(Way, Duration),
    /// Nothing arrives until the end, and then it all does: a partition.
    Hold,
    /// What is sent one way never arrives.
    Swallow(Way),
    /// Nothing arrives either way, and nobody is told: a half-open connection.
    HalfOpen,
    /// Connections are closed, and those that come.
    Refuse,
    /// Connections are closed.
    Cut,
    /// A connection is closed in the midst of a message.
    CutAfter(Way, usize),
}

/// Something that befalls the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outage {
    Pause(Duration),
    /// It is killed, is down for a while, and comes back.
    Restart(Data, Duration),
    /// Its clock is set by so many milliseconds.
    Step(i64),
}

/// A time between two, in milliseconds.
pub(crate) fn millis(dice: &mut Dice, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + dice.below(to - from))
}

impl Blow {
    pub(crate) fn choose(dice: &mut Dice, menu: Menu) -> Blow {
        let stalls = menu.stalls && (!menu.workers || dice.chance(30));
        match dice.below(3) {
            _ if stalls => Blow::Stall,
            0 => Blow::Kill,
            _ => Blow::Pause(millis(dice, 20, 450)),
        }
    }
}

impl Cable {
    pub(crate) fn choose(dice: &mut Dice) -> Cable {
        let way = [Way::ToServer, Way::ToClient][dice.below(2) as usize];
        match dice.below(9) {
            0..3 => Cable::Delay(way, millis(dice, 5, 700)),
            3 => Cable::Hold,
            4 => Cable::Swallow(way),
            5 => Cable::HalfOpen,
            6 => Cable::Refuse,
            7 => Cable::Cut,
            _ => Cable::CutAfter(way, dice.below(2_000) as usize),
        }
    }
}

/// Where the store's clock stands against where it has been.
#[derive(Debug, Default)]
pub(crate) struct ClockHand {
    now_ms: i64,
    furthest_ms: i64,
}

impl Outage {
    /// Data is never lost while the clock is behind where it has been: the two together are what no store's tokens outlive,
    /// and a run that had both could not be asked for rising tokens at all. `forgets` says that every restart loses data.
    pub(crate) fn choose(dice: &mut Dice, forgets: bool, clock: &mut ClockHand) -> Outage {
        let down = millis(dice, 0, 1_500);
        let behind = clock.furthest_ms - clock.now_ms;
        let step = 100 + dice.below(4_900) as i64;
        let outage = match dice.below(6) {
            0 | 1 => Outage::Pause(millis(dice, 50, 3_000)),
            2 if behind == 0 => Outage::Restart(Data::Lost, down),
            2 | 3 if behind == 0 || !forgets => Outage::Restart(Data::Kept, down),
            2 | 3 => Outage::Pause(down),
            // Beyond where it has been, or it would hardly ever be there again.
            4 => Outage::Step(behind + step),
            _ => Outage::Step(-step),
        };
        if let Outage::Step(step) = outage {
            clock.now_ms += step;
            clock.furthest_ms = clock.furthest_ms.max(clock.now_ms);
        }
        outage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many faults of one kind as a long run has.
    fn many<F>(seed: u64, mut choose: impl FnMut(&mut Dice) -> F) -> Vec<F> {
        let mut dice = Dice::new(seed);
        (0..200).map(|_| choose(&mut dice)).collect()
    }

    fn outages(seed: u64, forgets: bool) -> Vec<Outage> {
        let mut clock = ClockHand::default();
        many(seed, |dice| Outage::choose(dice, forgets, &mut clock))
    }

    #[test]
    fn a_long_run_has_every_fault_and_follows_its_seed() {
        let blows = || many(7, |dice| Blow::choose(dice, Menu::ALL));
        let faults = || (blows(), many(7, Cable::choose), outages(7, false));
        assert_eq!(faults(), faults(), "the seed decides");
        let text = format!("{:?}", faults());
        let kinds = "Pause Stall Kill Delay(ToServer Delay(ToClient Hold Swallow(ToServer Swallow(ToClient HalfOpen \
                     Refuse Cut CutAfter Restart(Lost Restart(Kept Step( Step(-";
        for kind in kinds.split(' ') {
            assert!(text.contains(kind), "{kind}");
        }
    }

    #[test]
    fn data_is_never_lost_while_the_clock_is_behind() {
        for (seed, forgets) in (0..200).flat_map(|seed| [(seed, false), (seed, true)]) {
            let (mut now, mut furthest) = (0, 0);
            for outage in outages(seed, forgets) {
                match outage {
                    Outage::Step(step) => now += step,
                    Outage::Restart(data, _) if data == Data::Lost || forgets => {
                        assert_eq!(now, furthest, "seed {seed}");
                    }
                    _ => {}
                }
                furthest = furthest.max(now);
            }
        }
    }
}
