//! The faults, and how a seed chooses among them. `injector.rs` and `servers.rs` carry them out.

use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_servers::{Data, Way};
use tenure_testkit::Dice;

/// Worker faults to inject in a run. If the store has servers, faults of the servers, and of the links if there are
/// any, are always injected too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSet {
    /// Workers are paused for less than a lease, or killed.
    pub workers: bool,
    /// Workers are paused between reading and writing a counter, until another worker writes it or 4 s have passed.
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
    /// The worker is paused for this time, which is shorter than every lease.
    Pause(Duration),
    /// The worker is paused between reading and writing a counter, until another worker writes it or 4 s have passed.
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

/// Server that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// True to hit a master, false to hit another server, or any server if all are masters.
    pub(crate) master: bool,
    pub(crate) number: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFault {
    Pause(Target, Duration),
    /// A server is killed, stays down for this time, and starts again.
    Restart(Target, Data, Duration),
    /// A master is killed, and starts again when a replica has taken over.
    Replace(usize),
    /// A replica takes over without a failure of the master, or a slot moves to another node.
    Move(usize),
    /// All clients of a server are disconnected; a member of etcd or a server of ZooKeeper is cut off from the others.
    Cut(Target),
    /// The server's clock is set forward or back by this many milliseconds.
    Step(i64),
}

/// Which faults a store's servers allow, and what these faults can do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    /// The store has a single server, whose clock can be set.
    pub(crate) steps: bool,
    /// Restarts that delete all data are injected.
    pub(crate) loses: bool,
    /// Restarts may lose data, because not every server writes its data to disk before it replies.
    pub(crate) forgets: bool,
    /// Replicas take over from masters.
    pub(crate) replicated: bool,
    /// Masters are not paused: etcd 3.4.23 then ends leases that were just renewed.
    pub(crate) spares_masters: bool,
    /// The store promises that no injected fault makes two clients hold a key.
    pub(crate) withstands_all: bool,
}

/// Waiters that may lose their places in the queue because of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Waiters of the worker process in this seat. A worker that replaces a killed one takes its seat.
    Seat(usize),
    /// All waiters: the fault hit the store, or a worker that may have blocked the store.
    AllWaiters,
}

/// Entry of the fault log: one injected fault.
#[derive(Clone, Debug)]
pub(crate) struct InjectedFault {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    pub(crate) scope: Scope,
    /// Hazard to which the fault belongs. If the store's profile lists it, the fault's effects are exempt from checks.
    pub(crate) hazard: Option<Hazard>,
    pub(crate) what: String,
}

/// Words in the description of each fault that made other servers masters.
pub(crate) const REPLACED: &str = "masters replaced";

/// Random duration of at least `from` and less than `to` milliseconds.
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
pub(crate) struct ClockOffset {
    now_ms: i64,
    largest_ms: i64,
}

impl StoreFault {
    /// Chooses a fault of the servers. While the clock is behind its largest offset, chooses no fault that loses data:
    /// after a loss, tokens go on from the server's clock, so they would be lower than before.
    pub(crate) fn choose(dice: &mut Dice, allowed: Allowed, clock: &mut ClockOffset) -> StoreFault {
        let down = millis(dice, 0, 1_500);
        let behind = clock.largest_ms - clock.now_ms;
        let step = 100 + dice.below(4_900) as i64;
        let (master, number) = (dice.chance(60), dice.below(1_000) as usize);
        let target = Target { master, number };
        let paused = Target {
            master: master && !allowed.spares_masters,
            number,
        };
        let fault = match dice.below(7) {
            0 | 1 => StoreFault::Pause(paused, millis(dice, 50, 3_000)),
            2 if allowed.loses && behind == 0 => StoreFault::Restart(target, Data::Lost, down),
            // A master that may forget its data is replaced, so that it comes back as a replica: as the master, it
            // would make its replicas forget too.
            2 | 3 if allowed.replicated && master && (allowed.forgets || number % 2 == 0) => {
                StoreFault::Replace(number)
            }
            2 | 3 if behind == 0 || !allowed.forgets => StoreFault::Restart(target, Data::Kept, down),
            2 | 3 => StoreFault::Pause(paused, down),
            // A step forward always goes beyond the largest offset so far: random steps would rarely reach that.
            4 if allowed.steps => StoreFault::Step(behind + step),
            5 if allowed.steps => StoreFault::Step(-step),
            4 | 5 if allowed.replicated => StoreFault::Move(number),
            _ => StoreFault::Cut(target),
        };
        if let StoreFault::Step(step) = fault {
            clock.now_ms += step;
            clock.largest_ms = clock.largest_ms.max(clock.now_ms);
        }
        fault
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

    fn store_faults(seed: u64, allowed: Allowed) -> Vec<StoreFault> {
        let mut clock = ClockOffset::default();
        many(seed, |dice| StoreFault::choose(dice, allowed, &mut clock))
    }

    const ONE_SERVER: Allowed = Allowed {
        steps: true,
        loses: true,
        forgets: false,
        replicated: false,
        spares_masters: false,
        withstands_all: false,
    };

    const FORGETFUL: Allowed = Allowed {
        forgets: true,
        ..ONE_SERVER
    };

    const REPLICATED: Allowed = Allowed {
        steps: false,
        loses: false,
        replicated: true,
        ..FORGETFUL
    };

    #[test]
    fn a_long_run_has_every_fault_and_follows_its_seed() {
        let worker_faults = || many(7, |dice| WorkerFault::choose(dice, FaultSet::ALL));
        let servers = || [store_faults(7, ONE_SERVER), store_faults(7, REPLICATED)];
        let faults = || (worker_faults(), many(7, LinkFault::choose), servers());
        assert_eq!(faults(), faults(), "the seed decides");
        let text = format!("{:?}", faults());
        let kinds = "Pause Stall Kill Delay(ToServer Delay(ToClient Hold Swallow(ToServer Swallow(ToClient HalfOpen \
                     Refuse Cut CutAfter Lost Kept Replace( Move( Cut(Target Step( Step(-";
        for kind in kinds.split(' ') {
            assert!(text.contains(kind), "{kind}");
        }
    }

    #[test]
    fn a_master_that_forgets_is_restarted_only_as_a_replica() {
        for fault in (0..20).flat_map(|seed| store_faults(seed, REPLICATED)) {
            let restarts = matches!(fault, StoreFault::Restart(target, ..) if target.master);
            assert!(!restarts && !matches!(fault, StoreFault::Step(_)), "{fault:?}");
        }
    }

    #[test]
    fn data_is_never_lost_while_the_clock_is_behind() {
        for (seed, allowed) in (0..200).flat_map(|seed| [(seed, ONE_SERVER), (seed, FORGETFUL)]) {
            let (mut now, mut furthest) = (0, 0);
            for fault in store_faults(seed, allowed) {
                match fault {
                    StoreFault::Step(step) => now += step,
                    StoreFault::Restart(_, data, _) if data == Data::Lost || allowed.forgets => {
                        assert_eq!(now, furthest, "seed {seed}");
                    }
                    _ => {}
                }
                furthest = furthest.max(now);
            }
        }
    }
}
