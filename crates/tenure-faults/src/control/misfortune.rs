//! Doing what the schedule says, to workers, links and store beside each other, and writing down what was done when.

use std::io;
use std::time::Duration;

use tenure::backend::Hazard;
use tenure::{Instant, LockKey};
use tenure_servers::{Data, Disk, Proxy, Redis, Way};
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::crew::Crew;
use super::deeds::{Deed, Whom};
use crate::journal::now;
use crate::schedule::{Blow, Cable, Outage, Planned, Schedule};
use crate::store::Store;

/// How often a log is read while something is waited for.
const PACE: Duration = Duration::from_millis(2);

/// How long a store may be kept from everybody without a waiter losing its place: less than is left of a lease when it is
/// renewed.
const HARMLESS: Duration = Duration::from_secs(1);

/// For how long it is tried to stop a worker between reading and writing.
const AIMING: Duration = Duration::from_secs(15);

/// How long a worker that was stopped in vain goes on before it is stopped again.
const RECOVERY: Duration = Duration::from_millis(500);

/// How long a worker is stopped there if nobody else writes.
const LONGEST_STALL: Duration = Duration::from_secs(4);

/// Does all of it that there is time for, and returns what was done. Afterwards nothing is paused, down, or in bad weather.
pub(crate) async fn strike(
    schedule: Schedule,
    span: Duration,
    crew: &mut Crew,
    store: &mut Store,
) -> io::Result<Vec<Deed>> {
    let (is_file, end) = (!store.is_server(), now() + span);
    let workers = carry_out(&schedule.workers, end, async |planned| {
        let (whom, what) = blow(crew, planned.seat, planned.fault, is_file).await?;
        Ok((whom, None, what))
    });
    let Store::Redis { server, disk, links } = store else {
        return workers.await;
    };
    let weather = carry_out(&schedule.links, end, async |planned| {
        let link = &links[planned.seat];
        spoil(link, planned.fault);
        sleep(planned.lasts).await;
        link.heal();
        Ok((Whom::Seat(planned.seat), None, format!("{:?}", planned.fault)))
    });
    let outages = carry_out(&schedule.store, end, async |planned| {
        outage(server, planned.fault).await?;
        let hazard = hazard(planned.fault, *disk);
        Ok((Whom::Everybody, hazard, format!("{:?}", planned.fault)))
    });
    let (workers, weather, outages) = tokio::try_join!(workers, weather, outages)?;
    let mut deeds = [workers, weather, outages].concat();
    deeds.sort_by_key(|deed| deed.from);
    Ok(deeds)
}

/// Carries out the faults of one course, each after its peace and until that moment, and writes down what `fault` did.
async fn carry_out<F>(
    planned: &[Planned<F>],
    end: Instant,
    mut fault: impl AsyncFnMut(&Planned<F>) -> io::Result<(Whom, Option<Hazard>, String)>,
) -> io::Result<Vec<Deed>> {
    let mut deeds = Vec::new();
    for planned in planned {
        sleep(planned.peace).await;
        if now() > end {
            break;
        }
        let from = now();
        let (whom, hazard, what) = fault(planned).await?;
        deeds.push(Deed {
            from,
            to: now(),
            whom,
            hazard,
            what,
        });
    }
    Ok(deeds)
}

/// What a fault does to a worker.
async fn blow(crew: &mut Crew, seat: usize, fault: Blow, is_file: bool) -> io::Result<(Whom, String)> {
    let from = now();
    let (what, kept_out) = match fault {
        Blow::Pause(time) => {
            crew.pause(seat);
            sleep(time).await;
            crew.resume(seat);
            (format!("{fault:?}"), now() - from > HARMLESS)
        }
        Blow::Kill => {
            crew.kill(seat)?;
            crew.fill(seat)?;
            (format!("{fault:?}"), false)
        }
        Blow::Stall => {
            let in_vain = stall(crew, seat).await?;
            (format!("{fault:?}, {in_vain} in vain"), in_vain > 0)
        }
    };
    // Who is stopped within a transaction keeps the file from all.
    let whom = if is_file && kept_out {
        Whom::Everybody
    } else {
        Whom::Seat(seat)
    };
    Ok((whom, format!("{what}, seat {seat}")))
}

/// Stops a worker while it holds a lock, between reading a counter and writing it, until another has written it; again if
/// nobody has: it was stopped where it kept all others from the store. How often that was in vain.
async fn stall(crew: &mut Crew, seat: usize) -> io::Result<u32> {
    let end = now() + AIMING;
    let mut in_vain = 0;
    while now() < end {
        let Some(key) = stop_between(crew, seat)? else {
            sleep(PACE).await;
            continue;
        };
        let stopped = now();
        let mut overtaken = false;
        while !overtaken && now() < stopped + LONGEST_STALL {
            sleep(PACE).await;
            overtaken = crew.latest_bump_elsewhere(seat, &key)? > stopped;
        }
        crew.resume(seat);
        if overtaken {
            break;
        }
        in_vain += 1;
        sleep(RECOVERY).await;
    }
    Ok(in_vain)
}

/// Stops the worker if that is between reading and writing; what is written in its log then is the truth.
fn stop_between(crew: &mut Crew, seat: usize) -> io::Result<Option<LockKey>> {
    if crew.look(seat)?.between_reading_and_writing().is_none() {
        return Ok(None);
    }
    crew.pause(seat);
    let key = crew.look(seat)?.between_reading_and_writing().cloned();
    if key.is_none() {
        crew.resume(seat);
    }
    Ok(key)
}

fn spoil(link: &Proxy, fault: Cable) {
    let both = [Way::ToServer, Way::ToClient];
    match fault {
        Cable::Delay(way, time) => link.delay(way, time),
        Cable::Hold => both.into_iter().for_each(|way| link.hold(way)),
        Cable::Swallow(way) => link.swallow(way),
        Cable::HalfOpen => both.into_iter().for_each(|way| link.swallow(way)),
        Cable::Refuse => link.refuse(),
        Cable::Cut => link.cut(),
        Cable::CutAfter(way, bytes) => link.cut_after(way, bytes),
    }
}

/// What a fault does to the store.
async fn outage(server: &mut Redis, fault: Outage) -> io::Result<()> {
    match fault {
        Outage::Pause(time) => {
            server.process().pause();
            sleep(time).await;
            server.process().resume();
        }
        Outage::Restart(data, down) => {
            server.process().kill();
            sleep(down).await;
            block_in_place(|| server.restart(data))?;
        }
        Outage::Step(by) => {
            let none = || io::Error::other("the server has no clock that steps");
            server.clock().ok_or_else(none)?.step_ms(by)?;
        }
    }
    Ok(())
}

/// What a store may name among its hazards, and then need not be safe from.
///
/// A pause, a restart that keeps every write, and a clock that is set back are none: a lease that is counted for too long
/// keeps others out.
fn hazard(fault: Outage, disk: Disk) -> Option<Hazard> {
    match fault {
        Outage::Restart(Data::Lost, _) => Some(Hazard::DataLoss),
        Outage::Restart(Data::Kept, _) if disk != Disk::EveryWrite => Some(Hazard::Restart),
        Outage::Step(by) if by > 0 => Some(Hazard::ClockSet),
        Outage::Restart(Data::Kept, _) | Outage::Step(_) | Outage::Pause(_) => None,
    }
}
