//! Doing faults to workers, links and store beside each other, and writing down what was done when.

use std::io;
use std::time::Duration;

use tenure::backend::Hazard;
use tenure::{Instant, LockKey};
use tenure_servers::{Data, Disk, Proxy, Redis, Way};
use tenure_testkit::Dice;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::crew::{Crew, within};
use super::fault::{Blow, Cable, ClockHand, Menu, Outage, millis};
use crate::log::now;
use crate::store::Store;

/// How long a store may be kept from everybody without a waiter losing its place: less than is left of a lease when it is
/// renewed.
const HARMLESS: Duration = Duration::from_secs(1);

/// For how long it is tried to stop a worker between reading and writing.
const AIMING: Duration = Duration::from_secs(15);

/// How long a worker that was stopped in vain goes on before it is stopped again.
const RECOVERY: Duration = Duration::from_millis(500);

/// How long a worker is stopped there if nobody else writes.
const LONGEST_STALL: Duration = Duration::from_secs(4);

/// Who may lose a place in a queue by what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    /// The worker on that seat.
    Seat(usize),
    /// Everybody: it was done to the store, or to somebody who may have kept it from all others.
    Everybody,
}

/// Something that was done.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    pub(crate) from: Instant,
    pub(crate) to: Instant,
    pub(crate) whom: Whom,
    /// What a store may name among its hazards, so that two may hold at once.
    pub(crate) hazard: Option<Hazard>,
    pub(crate) what: String,
}

/// Does what the seed chooses until the time is over, and returns what was done. Afterwards nothing is paused, down, or in
/// bad weather.
pub(crate) async fn strike(
    seed: u64,
    menu: Menu,
    span: Duration,
    crew: &mut Crew,
    store: &mut Store,
) -> io::Result<Vec<Deed>> {
    let (is_file, end) = (matches!(store, Store::File { .. }), now() + span);
    let (mut dice, seats) = (Dice::new(seed), crew.seats() as u64);
    let [blows, cables, outages] = [(); 3].map(|()| Dice::new(dice.roll()));
    let workers = async {
        if !menu.workers && !menu.stalls {
            return Ok(Vec::new());
        }
        let peace = |dice: &mut Dice| millis(dice, 300, 1_200);
        let strike = async |dice: &mut Dice| {
            let (seat, fault) = (dice.below(seats) as usize, Blow::choose(dice, menu));
            let (whom, what) = blow(crew, seat, fault, is_file).await?;
            Ok((whom, None, what))
        };
        course(end, blows, peace, strike).await
    };
    let Store::Redis { server, disk, links } = store else {
        return workers.await;
    };
    let peace = |dice: &mut Dice| millis(dice, 200, 1_000);
    let weather = course(end, cables, peace, async |dice| {
        let (seat, fault) = (dice.below(seats) as usize, Cable::choose(dice));
        spoil(&links[seat], fault);
        sleep(millis(dice, 100, 3_000)).await;
        links[seat].heal();
        Ok((Whom::Seat(seat), None, format!("{fault:?}")))
    });
    let peace = |dice: &mut Dice| match dice.chance(30) {
        // Now and then so long that the order of waiters can be judged.
        true => millis(dice, 4_000, 8_000),
        false => millis(dice, 500, 2_500),
    };
    let (mut clock, forgets) = (ClockHand::default(), *disk != Disk::EveryWrite);
    let outages = course(end, outages, peace, async |dice| {
        let fault = Outage::choose(dice, forgets, &mut clock);
        outage(server, fault).await?;
        Ok((Whom::Everybody, hazard(fault, *disk), format!("{fault:?}")))
    });
    let (workers, weather, outages) = tokio::try_join!(workers, weather, outages)?;
    let mut deeds = [workers, weather, outages].concat();
    deeds.sort_by_key(|deed| deed.from);
    Ok(deeds)
}

/// Does one fault after the other, each after its peace and until that moment, and writes down what `fault` did.
async fn course(
    end: Instant,
    mut dice: Dice,
    peace: impl Fn(&mut Dice) -> Duration,
    mut fault: impl AsyncFnMut(&mut Dice) -> io::Result<(Whom, Option<Hazard>, String)>,
) -> io::Result<Vec<Deed>> {
    let mut deeds = Vec::new();
    loop {
        sleep(peace(&mut dice)).await;
        let from = now();
        if from > end {
            return Ok(deeds);
        }
        let (whom, hazard, what) = fault(&mut dice).await?;
        deeds.push(Deed {
            from,
            to: now(),
            whom,
            hazard,
            what,
        });
    }
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
        let Some(key) = within(end - now(), async || stop_between(crew, seat)).await? else {
            break;
        };
        let stopped = now();
        let overtaken = within(LONGEST_STALL, async || {
            let overtaken = crew.shows(|sight| sight.bumped_since(&key, stopped))?;
            Ok(overtaken.then_some(()))
        });
        let overtaken = overtaken.await?;
        crew.resume(seat);
        if overtaken.is_some() {
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
