//! What misfortune there will be, and when: a list that a seed decides. Doing it is `control`'s.

use std::time::Duration;

use tenure_servers::{Data, Way};
use tenure_testkit::Dice;

use crate::store::Store;

/// Which faults a run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Menu {
    /// Workers are paused for less than a lease, and killed.
    pub workers: bool,
    /// Workers are paused for longer than their lease, between reading and writing.
    pub stalls: bool,
    /// Holders are killed once all else is calm, to see how soon others have their locks.
    pub successions: bool,
    /// What the links of workers and the store itself suffer, where there is a server.
    pub store: bool,
    /// Whether every restart of the store loses data.
    pub forgets: bool,
}

impl Menu {
    /// Fair weather.
    pub const NOTHING: Menu = Menu {
        workers: false,
        stalls: false,
        successions: false,
        store: false,
        forgets: false,
    };
    /// Pauses beyond the lease alone.
    pub const STALLS: Menu = Menu {
        stalls: true,
        ..Menu::NOTHING
    };
    /// All there are.
    pub const ALL: Menu = Menu {
        workers: true,
        successions: true,
        store: true,
        ..Menu::STALLS
    };

    /// As much of it as can befall that store.
    pub(crate) fn on(mut self, store: &Store) -> Menu {
        self.store &= store.is_server();
        self.forgets |= store.forgets();
        self
    }
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

/// A fault of one kind, the peace before it, and whom it befalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned<F> {
    pub(crate) peace: Duration,
    pub(crate) seat: usize,
    pub(crate) lasts: Duration,
    pub(crate) fault: F,
}

/// All that will happen, in three courses that run beside each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) workers: Vec<Planned<Blow>>,
    pub(crate) links: Vec<Planned<Cable>>,
    pub(crate) store: Vec<Planned<Outage>>,
}

impl Schedule {
    /// What happens within about that time to workers on so many seats. The same seed says the same.
    pub(crate) fn new(seed: u64, span: Duration, seats: usize, menu: Menu) -> Schedule {
        let mut dice = Dice::new(seed);
        let [mut workers, mut links, mut store] = [(); 3].map(|()| Dice::new(dice.roll()));
        let mut schedule = Schedule::default();
        if menu.workers || menu.stalls {
            schedule.workers = course(span, |dice| blow(dice, seats, menu), &mut workers);
        }
        if menu.store {
            let mut clock = ClockHand::default();
            schedule.links = course(span, |dice| cable(dice, seats), &mut links);
            schedule.store = course(span, |dice| outage(dice, menu.forgets, &mut clock), &mut store);
        }
        schedule
    }
}

/// One course of faults, as many as the time has room for.
fn course<F>(
    span: Duration,
    mut next: impl FnMut(&mut Dice) -> Planned<F>,
    dice: &mut Dice,
) -> Vec<Planned<F>> {
    let mut planned = Vec::new();
    let mut passed = Duration::ZERO;
    loop {
        let fault = next(dice);
        passed += fault.peace + fault.lasts;
        if passed > span {
            return planned;
        }
        planned.push(fault);
    }
}

fn millis(dice: &mut Dice, from: u64, to: u64) -> Duration {
    Duration::from_millis(from + dice.below(to - from))
}

fn blow(dice: &mut Dice, seats: usize, menu: Menu) -> Planned<Blow> {
    let stalls = menu.stalls && (!menu.workers || dice.chance(30));
    let (fault, lasts) = match dice.below(3) {
        // About what a stall takes.
        _ if stalls => (Blow::Stall, Duration::from_millis(2_500)),
        0 => (Blow::Kill, Duration::ZERO),
        _ => {
            let pause = millis(dice, 20, 450);
            (Blow::Pause(pause), pause)
        }
    };
    Planned {
        peace: millis(dice, 300, 1_200),
        seat: dice.below(seats as u64) as usize,
        lasts,
        fault,
    }
}

fn cable(dice: &mut Dice, seats: usize) -> Planned<Cable> {
    let way = [Way::ToServer, Way::ToClient][dice.below(2) as usize];
    let fault = match dice.below(9) {
        0..3 => Cable::Delay(way, millis(dice, 5, 700)),
        3 => Cable::Hold,
        4 => Cable::Swallow(way),
        5 => Cable::HalfOpen,
        6 => Cable::Refuse,
        7 => Cable::Cut,
        _ => Cable::CutAfter(way, dice.below(2_000) as usize),
    };
    Planned {
        peace: millis(dice, 200, 1_000),
        seat: dice.below(seats as u64) as usize,
        lasts: millis(dice, 100, 3_000),
        fault,
    }
}

/// Where the store's clock stands against where it has been.
#[derive(Debug, Default)]
struct ClockHand {
    now_ms: i64,
    furthest_ms: i64,
}

/// Data is never lost while the clock is behind where it has been: the two together are what no store's tokens outlive,
/// and a run that had both could not be asked for rising tokens at all.
fn outage(dice: &mut Dice, forgets: bool, clock: &mut ClockHand) -> Planned<Outage> {
    let down = millis(dice, 0, 1_500);
    let behind = clock.furthest_ms - clock.now_ms;
    let step = 100 + dice.below(4_900) as i64;
    let (fault, lasts) = match dice.below(6) {
        0 | 1 => {
            let pause = millis(dice, 50, 3_000);
            (Outage::Pause(pause), pause)
        }
        2 if behind == 0 => (Outage::Restart(Data::Lost, down), down),
        2 | 3 if behind == 0 || !forgets => (Outage::Restart(Data::Kept, down), down),
        2 | 3 => (Outage::Pause(down), down),
        // Beyond where it has been, or it would hardly ever be there again.
        4 => (Outage::Step(behind + step), Duration::ZERO),
        _ => (Outage::Step(-step), Duration::ZERO),
    };
    if let Outage::Step(step) = fault {
        clock.now_ms += step;
        clock.furthest_ms = clock.furthest_ms.max(clock.now_ms);
    }
    // Now and then so long that the order of waiters can be judged.
    let peace = if dice.chance(30) {
        millis(dice, 4_000, 8_000)
    } else {
        millis(dice, 500, 2_500)
    };
    Planned {
        peace,
        seat: 0,
        lasts,
        fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(600);

    #[test]
    fn a_long_run_has_every_kind_of_fault_and_fair_weather_none() {
        let schedule = Schedule::new(7, SPAN, 4, Menu::ALL);
        assert_eq!(schedule, Schedule::new(7, SPAN, 4, Menu::ALL), "the seed decides");
        let text = format!("{schedule:?}");
        for kind in [
            "Pause",
            "Stall",
            "Kill",
            "Delay(ToServer",
            "Delay(ToClient",
            "Hold",
            "Swallow(ToServer",
            "Swallow(ToClient",
            "HalfOpen",
            "Refuse",
            "Cut",
            "CutAfter",
            "Restart(Lost",
            "Restart(Kept",
            "Step(",
            "Step(-",
        ] {
            assert!(text.contains(kind), "{kind}");
        }
        assert_eq!(Schedule::new(7, SPAN, 4, Menu::NOTHING), Schedule::default());
    }

    #[test]
    fn data_is_never_lost_while_the_clock_is_behind_where_it_has_been() {
        let forgets = Menu {
            forgets: true,
            ..Menu::ALL
        };
        for (seed, menu) in (0..200).flat_map(|seed| [(seed, Menu::ALL), (seed, forgets)]) {
            let (mut now, mut furthest) = (0, 0);
            for planned in Schedule::new(seed, SPAN, 4, menu).store {
                match planned.fault {
                    Outage::Step(step) => now += step,
                    Outage::Restart(data, _) if data == Data::Lost || menu.forgets => {
                        assert_eq!(now, furthest, "seed {seed}");
                    }
                    _ => {}
                }
                furthest = furthest.max(now);
            }
        }
    }
}
