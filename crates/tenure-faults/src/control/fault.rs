//! The faults, and how a seed chooses among them. `injector.rs` carries them out.

use std::time::Duration;

use tenure_servers::{Data, Way};
use tenure_testkit::Dice;

/// Worker faults to inject in a run. If the store is a server, faults of the server and of its links are always
/// injected too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSet {
    /// Workers are paused for less than a lease, or killed.
    pub workers: bool,
    /// Workers are paused between reading and writing a counter, until another worker writes it.
    pub stalls: bool,
    /// Holders are killed after the other faults have ended, to measure how soon their locks are granted again.
    pub successions: bool,
}

impl FaultSet {
    /// No worker faults.
    pub const NOTHING: FaultSet = FaultSet {
        workers: false,
        stalls: false,
        successions: false,
    };
    /// Only `stalls`, no other worker faults.
    pub const STALLS: FaultSet = FaultSet {
        stalls: true,
        ..FaultSet::NOTHING
    };
    /// All worker faults.
    pub const ALL: FaultSet = FaultSet {
        workers: true,
        stalls: true,
        successions: true,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerFault {
    /// The worker is paused for this time, less than its lease.
    Pause(Duration),
    /// The worker is paused between reading and writing a counter, until another worker has written it.
    Stall,
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// Data in this direction is delayed by this time.
    Delay(Way, Duration),
    /// A partition: all data is held back until the fault ends.
    Hold,
    /// Data in this direction is discarded.
    Swallow(Way),
    /// Data in both directions is discarded without an error: a half-open connection.
    HalfOpen,
    /// Existing and new connections are closed.
    Refuse,
    /// Only existing connections are closed.
    Cut,
    /// A connection is closed after this many bytes in this direction.
    CutAfter(Way, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFault {
    Pause(Duration),
    /// The server is killed, stays down for this time, and starts again.
    Restart(Data, Duration),
    /// The server's clock is set forward or back by this many milliseconds.
    Step(i64),
}

/// Random duration of `from` to `to` milliseconds.
pub(crate) fn millis(dice: &mut Dice, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + dice.below(to - from))
}

impl WorkerFault {
    pub(crate) fn choose(dice: &mut Dice, fault_set: FaultSet) -> WorkerFault {
        let stalls = fault_set.stalls && (!fault_set.workers || dice.chance(30));
        match dice.below(3) {
            _ if stalls => WorkerFault::Stall,
            0 => WorkerFault::Kill,
            _ => WorkerFault::Pause(millis(dice, 20, 450)),
        }
    }
}

impl LinkFault {
    pub(crate) fn choose(dice: &mut Dice) -> LinkFault {
        let way = [Way::ToServer, Way::ToClient][dice.below(2) as usize];
        match dice.below(9) {
            0..3 => LinkFault::Delay(way, millis(dice, 5, 700)),
            3 => LinkFault::Hold,
            4 => LinkFault::Swallow(way),
            5 => LinkFault::HalfOpen,
            6 => LinkFault::Refuse,
            7 => LinkFault::Cut,
            _ => LinkFault::CutAfter(way, dice.below(2_000) as usize),
        }
    }
}

/// Offset of the server's clock: now, and the largest so far.
#[derive(Debug, Default)]
pub(crate) struct ClockHand {
    now_ms: i64,
    furthest_ms: i64,
}

impl StoreFault {
    /// Chooses a fault of the server. No fault loses data while the clock is behind its largest offset, because no
    /// store could then keep tokens rising. `forgets` means that every restart loses data.
    pub(crate) fn choose(dice: &mut Dice, forgets: bool, clock: &mut ClockHand) -> StoreFault {
        let down = millis(dice, 0, 1_500);
        let behind = clock.furthest_ms - clock.now_ms;
        let step = 100 + dice.below(4_900) as i64;
        let outage = match dice.below(6) {
            0 | 1 => StoreFault::Pause(millis(dice, 50, 3_000)),
            2 if behind == 0 => StoreFault::Restart(Data::Lost, down),
            2 | 3 if behind == 0 || !forgets => StoreFault::Restart(Data::Kept, down),
            2 | 3 => StoreFault::Pause(down),
            // Sets the clock beyond its largest offset, which smaller steps would rarely reach.
            4 => StoreFault::Step(behind + step),
            _ => StoreFault::Step(-step),
        };
        if let StoreFault::Step(step) = outage {
            clock.now_ms += step;
            clock.furthest_ms = clock.furthest_ms.max(clock.now_ms);
        }
        outage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `choose` 200 times with this seed.
    fn many<F>(seed: u64, mut choose: impl FnMut(&mut Dice) -> F) -> Vec<F> {
        let mut dice = Dice::new(seed);
        (0..200).map(|_| choose(&mut dice)).collect()
    }

    fn outages(seed: u64, forgets: bool) -> Vec<StoreFault> {
        let mut clock = ClockHand::default();
        many(seed, |dice| StoreFault::choose(dice, forgets, &mut clock))
    }

    #[test]
    fn a_long_run_has_every_fault_and_follows_its_seed() {
        let blows = || many(7, |dice| WorkerFault::choose(dice, FaultSet::ALL));
        let faults = || (blows(), many(7, LinkFault::choose), outages(7, false));
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
                    StoreFault::Step(step) => now += step,
                    StoreFault::Restart(data, _) if data == Data::Lost || forgets => {
                        assert_eq!(now, furthest, "seed {seed}");
                    }
                    _ => {}
                }
                furthest = furthest.max(now);
            }
        }
    }
}
