//! `release`: makes a claim absent, and gives the key to whoever goes next: successor, queue, or the longest watcher.

use std::time::Duration;

use tenure_backend::{
    AcquireReply, BackendError, Batch, Cause, ClaimId, ClientId, Fairness, HolderId, Instant, MAX_NOT_AFTER,
    Mode, ReleaseReply, ReleaseRequest, ReleaseTarget, Successor, TURN,
};

use super::acquire::{Manners, attempt, waiting};
use super::{Phase, Row, View};
use crate::profile::LIMITS;

/// Ends whoever was named, and then lets the successor or others go on.
pub(crate) fn release(view: &mut View, departure: &ReleaseRequest) -> ReleaseReply {
    if let Err(refusal) = check(departure) {
        return ReleaseReply::Unknown(refusal);
    }
    let mut freed = Batch::new();
    match &departure.target {
        ReleaseTarget::Claim(claim) => end(view, claim.id, departure, &mut freed),
        ReleaseTarget::All(_) => {
            let holders: Vec<ClaimId> = view.holders().map(|row| row.id).collect();
            for id in holders {
                end(view, id, departure, &mut freed);
            }
        }
        // This layout has claims of ours alone: a foreign hold is absent already.
        ReleaseTarget::Foreign { .. } => {}
    }
    let client = match &departure.target {
        ReleaseTarget::Claim(claim) => Some(claim.id.client()),
        ReleaseTarget::All(_) | ReleaseTarget::Foreign { .. } => None,
    };
    let others = others(view, client);
    let succeeds = |view: &mut View, successor: &Successor| succeed(view, successor, others);
    let (early, late) = match &departure.successor {
        // A queued successor must be in the queue before turns are given: a queue goes before all watchers.
        Some(successor) if successor.claim.fairness == Fairness::Fifo => (Some(successor), None),
        successor => (None, successor.as_ref()),
    };
    let early = early.map(|successor| succeeds(view, successor));
    if !freed.is_empty() {
        view.stir();
        give_turns(view, client);
    }
    let late = late.map(|successor| succeeds(view, successor));
    ReleaseReply::Done {
        freed,
        others: Some(others),
        successor: early.or(late),
    }
}

fn check(departure: &ReleaseRequest) -> Result<(), BackendError> {
    let successor = departure.checked_successor()?;
    successor.map_or(Ok(()), |successor| successor.check(&LIMITS))
}

/// Places the successor; it is granted only if nobody else waits. A successor that is refused with an error (another kind,
/// say) must not keep the claim before it from being released: it learns at its own next poll.
fn succeed(view: &mut View, successor: &Successor, others: u32) -> AcquireReply {
    let manners = if others == 0 {
        Manners::Goes
    } else {
        Manners::Yields
    };
    attempt(view, &successor.claim, successor.not_after, manners)
        .unwrap_or_else(|_| waiting(None, Duration::ZERO))
}

/// Makes one claim absent for good. A claim that was never placed is remembered too: its request may be on its way.
fn end(view: &mut View, id: ClaimId, departure: &ReleaseRequest, freed: &mut Batch<HolderId>) {
    let now = view.now();
    let known = view.row(id).cloned();
    let remember = now + MAX_NOT_AFTER;
    let held = known
        .as_ref()
        .is_some_and(|row| matches!(row.phase, Phase::Waiting | Phase::Granted) && row.lasts(now));
    if held {
        freed.push(HolderId::Claim(id));
    }
    let (phase, evictor) = match (&departure.cause, &known) {
        // Whoever evicted it first is whom the holder hears of.
        (_, Some(row)) if row.phase == Phase::Evicted => (Phase::Evicted, row.evictor.clone()),
        (Cause::Evicted { by }, Some(_)) if held => (Phase::Evicted, by.clone()),
        _ => (Phase::Ended, None),
    };
    let cooldown = if held { now + departure.cooldown } else { now };
    let (until, reserved) = match &known {
        Some(row) if row.phase == Phase::Evicted => (row.until.max(remember), row.reserved.max(cooldown)),
        // Its holder is to learn of it as long as it may believe in its lease.
        Some(row) if phase == Phase::Evicted => (row.until.max(remember), cooldown),
        _ => (remember, cooldown),
    };
    let row = known.unwrap_or_else(|| unplaced(id));
    view.put(Row {
        phase,
        until,
        reserved,
        evictor,
        ..row
    });
}

fn unplaced(id: ClaimId) -> Row {
    Row {
        id,
        phase: Phase::Ended,
        mode: Mode::Exclusive,
        place: 0,
        until: Instant::ORIGIN,
        reserved: Instant::ORIGIN,
        tokens: None,
        label: "".into(),
        evictor: None,
    }
}

/// How many queue or watch for other clients. Those who missed their turn do not count: they may be dead.
fn others(view: &View, client: Option<ClientId>) -> u32 {
    let now = view.now();
    let elsewhere = |row: &&Row| Some(row.id.client()) != client;
    let watchers = view.watchers().filter(|row| !row.missed_its_turn(now));
    let count = view.queue().chain(watchers).filter(elsewhere).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Keeps the key for a moment for those of other clients who have watched longest and may hold it, so that a
/// client that is quick to ask again does not starve them.
fn give_turns(view: &mut View, client: Option<ClientId>) {
    if view.queue().next().is_some() {
        return;
    }
    let now = view.now();
    let mut held: Vec<Mode> = view.holders().map(|row| row.mode).collect();
    let in_time = |row: &&Row| !row.missed_its_turn(now) && Some(row.id.client()) != client;
    let candidates: Vec<Row> = view.watchers().filter(in_time).cloned().collect();
    let end = view.barred_until().unwrap_or(now) + TURN;
    for row in candidates {
        if row.mode.admits(held.iter().copied()) {
            held.push(row.mode);
            view.put(Row { reserved: end, ..row });
        }
    }
}
