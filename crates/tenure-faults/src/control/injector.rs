//! Injects faults into workers, links and the store at the same time, and logs each fault and its times.

use std::io;
use std::time::Duration;

use tenure::backend::Hazard;
use tenure::{Instant, LockKey};
use tenure_servers::{Proxy, Way};
use tenure_testkit::Dice;
use tokio::time::sleep;

use super::workers::{Workers, within};
use crate::fault::{ClockOffset, FaultSet, InjectedFault, LinkFault, Scope, StoreFault, WorkerFault, millis};
use crate::log::now;
use crate::store::Store;

/// A worker that is paused within a transaction blocks the SQLite file, so waiters cannot renew their claims. In a
/// pause of at most this length no claim expires, so no waiter loses its place in the queue: each waiter polls while
/// its lease still has more time left than this.
const HARMLESS_PAUSE: Duration = Duration::from_secs(1);

/// Time for which a `Stall` fault tries to pause the worker between reading and writing a counter.
const STALL_TIME_LIMIT: Duration = Duration::from_secs(15);

/// Time until the next try of a stall, after a try in which no other worker wrote the counter.
const RECOVERY: Duration = Duration::from_millis(500);

/// Maximum duration of a stall if no other worker writes the counter.
const LONGEST_STALL: Duration = Duration::from_secs(4);

/// Injects, for the given time, the faults that the seed chooses. Returns the fault log when all faults have ended.
pub(crate) async fn inject(
    seed: u64,
    fault_set: FaultSet,
    span: Duration,
    workers: &mut Workers,
    store: &mut Store,
) -> io::Result<Vec<InjectedFault>> {
    let (is_file, end) = (store.servers.is_none(), now() + span);
    let (mut dice, seats) = (Dice::new(seed), workers.seats() as u64);
    let [worker_dice, link_dice, store_dice] = [(); 3].map(|()| Dice::new(dice.roll()));
    let worker_faults = async {
        if !fault_set.workers && !fault_set.stalls {
            return Ok(Vec::new());
        }
        let interval = |dice: &mut Dice| millis(dice, 300, 1_200);
        let inject = async |dice: &mut Dice| {
            let (seat, fault) = (dice.below(seats) as usize, WorkerFault::choose(dice, fault_set));
            let (scope, what) = inject_worker_fault(workers, seat, fault, is_file).await?;
            Ok((scope, None, what))
        };
        inject_until(end, worker_dice, interval, inject).await
    };
    let Store {
        servers: Some(servers),
        links,
        ..
    } = store
    else {
        return worker_faults.await;
    };
    let interval = |dice: &mut Dice| millis(dice, 200, 1_000);
    let link_faults = async {
        if links.is_empty() {
            return Ok(Vec::new());
        }
        let inject = async |dice: &mut Dice| {
            let (seat, fault) = (dice.below(seats) as usize, LinkFault::choose(dice));
            let links = choose_links(&links[seat], dice);
            links.iter().for_each(|link| apply_link_fault(link, fault));
            sleep(millis(dice, 100, 3_000)).await;
            links.iter().for_each(Proxy::heal);
            Ok((
                Scope::Seat(seat),
                None,
                format!("{fault:?}, {} links", links.len()),
            ))
        };
        inject_until(end, link_dice, interval, inject).await
    };
    let interval = |dice: &mut Dice| match dice.chance(30) {
        // The check of the waiting order skips waits that a fault disturbed. Faults this far apart leave some waits
        // undisturbed.
        true => millis(dice, 4_000, 8_000),
        false => millis(dice, 500, 2_500),
    };
    let (mut clock, mut failovers) = (ClockOffset::default(), Vec::new());
    let store_faults = inject_until(end, store_dice, interval, async |dice| {
        failovers.extend(servers.unexpected_failover().await?);
        let fault = StoreFault::choose(dice, servers.allowed, &mut clock);
        let (hazard, what) = servers.inject(fault).await?;
        Ok((Scope::AllWaiters, hazard, what))
    });
    let (worker_faults, link_faults, store_faults) =
        tokio::try_join!(worker_faults, link_faults, store_faults)?;
    let mut fault_log = [worker_faults, link_faults, store_faults, failovers].concat();
    fault_log.sort_by_key(|fault| fault.from);
    Ok(fault_log)
}

/// Calls `fault`, which injects a fault, until `end`: each time after a random `interval`. Returns the fault log.
async fn inject_until(
    end: Instant,
    mut dice: Dice,
    interval: impl Fn(&mut Dice) -> Duration,
    mut fault: impl AsyncFnMut(&mut Dice) -> io::Result<(Scope, Option<Hazard>, String)>,
) -> io::Result<Vec<InjectedFault>> {
    let mut fault_log = Vec::new();
    loop {
        sleep(interval(&mut dice)).await;
        let from = now();
        if from > end {
            return Ok(fault_log);
        }
        let (scope, hazard, what) = fault(&mut dice).await?;
        fault_log.push(InjectedFault {
            from,
            to: now(),
            scope,
            hazard,
            what,
        });
    }
}

/// Injects a fault into a worker. Returns the affected waiters, and a description.
async fn inject_worker_fault(
    workers: &mut Workers,
    seat: usize,
    fault: WorkerFault,
    is_file: bool,
) -> io::Result<(Scope, String)> {
    let from = now();
    let (what, blocked_others) = match fault {
        WorkerFault::Pause(time) => {
            workers.pause(seat);
            sleep(time).await;
            workers.resume(seat);
            (format!("{fault:?}"), now() - from > HARMLESS_PAUSE)
        }
        WorkerFault::Kill => {
            workers.kill(seat)?;
            workers.replace(seat)?;
            (format!("{fault:?}"), false)
        }
        WorkerFault::Stall => {
            let failed_tries = stall(workers, seat).await?;
            (
                format!("{fault:?}, {failed_tries} failed tries"),
                failed_tries > 0,
            )
        }
    };
    // If the worker was paused within a transaction, it blocked the SQLite file for all workers.
    let scope = if is_file && blocked_others {
        Scope::AllWaiters
    } else {
        Scope::Seat(seat)
    };
    Ok((scope, format!("{what}, seat {seat}")))
}

/// Pauses a worker that holds a lock, between reading and writing a counter, until another worker writes the counter.
/// If no worker does so within 4 s, tries again: the pause may have blocked the store. Returns the number of failed
/// tries.
async fn stall(workers: &mut Workers, seat: usize) -> io::Result<u32> {
    let end = now() + STALL_TIME_LIMIT;
    let mut failed_tries = 0;
    while now() < end {
        let Some(key) = within(end - now(), async || pause_between(workers, seat)).await? else {
            break;
        };
        let stopped = now();
        let overtaken = within(LONGEST_STALL, async || {
            let overtaken = workers.any_log(|log| log.bumped_since(&key, stopped))?;
            Ok(overtaken.then_some(()))
        });
        let overtaken = overtaken.await?;
        workers.resume(seat);
        if overtaken.is_some() {
            break;
        }
        failed_tries += 1;
        sleep(RECOVERY).await;
    }
    Ok(failed_tries)
}

/// Pauses the worker if it is between reading and writing a counter, and returns the counter's key. Reads the log again
/// after the pause: the worker may have written the counter in between.
fn pause_between(workers: &mut Workers, seat: usize) -> io::Result<Option<LockKey>> {
    if workers.read_log(seat)?.between_reading_and_writing().is_none() {
        return Ok(None);
    }
    workers.pause(seat);
    let key = workers.read_log(seat)?.between_reading_and_writing().cloned();
    if key.is_none() {
        workers.resume(seat);
    }
    Ok(key)
}

/// Chooses all links of a worker, or one.
fn choose_links<'a>(links: &'a [Proxy], dice: &mut Dice) -> &'a [Proxy] {
    let one = dice.below(links.len() as u64) as usize;
    if dice.chance(30) { links } else { &links[one..=one] }
}

fn apply_link_fault(link: &Proxy, fault: LinkFault) {
    let both = [Way::ToServer, Way::ToClient];
    match fault {
        LinkFault::Delay(way, time) => link.delay(way, time),
        LinkFault::Hold => both.into_iter().for_each(|way| link.hold(way)),
        LinkFault::Swallow(way) => link.swallow(way),
        LinkFault::HalfOpen => both.into_iter().for_each(|way| link.swallow(way)),
        LinkFault::Refuse => link.refuse(),
        LinkFault::Cut => link.cut(),
        LinkFault::CutAfter(way, bytes) => link.cut_after(way, bytes),
    }
}
