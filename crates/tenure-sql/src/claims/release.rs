//! `release`: ends claims, and lets the next claim have the key: the successor, the head of the queue or the oldest
//! unfair waiters of other clients.

use tenure_backend::{
    AcquireReply, BackendError, Batch, Cause, ClaimId, ClientId, Fairness, HolderId, Instant, Limits,
    MAX_NOT_AFTER, Mode, ReleaseReply, ReleaseRequest, ReleaseTarget, Successor, TURN,
};

use super::acquire::{GrantPolicy, place_or_poll, waiting};
use super::{Phase, Row, View};

/// Ends the claims that the request names, reserves the freed key for unfair waiters of other clients, and places the
/// successor.
pub(crate) fn release(view: &mut View, request: &ReleaseRequest) -> ReleaseReply {
    if let Err(refusal) = check(request, &view.profile.limits) {
        return ReleaseReply::Unknown(refusal);
    }
    let mut freed = Batch::new();
    match &request.target {
        ReleaseTarget::Claim(claim) => end_claim(view, claim.id, request, &mut freed),
        ReleaseTarget::All(_) => {
            let holders: Vec<ClaimId> = view.holders().map(|row| row.id).collect();
            for id in holders {
                end_claim(view, id, request, &mut freed);
            }
        }
        // Only Tenure writes to this table, so it has no holders of foreign programs.
        ReleaseTarget::Foreign { .. } => {}
    }
    let client = match &request.target {
        ReleaseTarget::Claim(claim) => Some(claim.id.client()),
        ReleaseTarget::All(_) | ReleaseTarget::Foreign { .. } => None,
    };
    let others = count_others(view, client);
    let place = |view: &mut View, successor: &Successor| place_successor(view, successor, others);
    let (early, late) = match &request.successor {
        // A fair successor is placed before the key could be reserved for unfair waiters: if it must queue, it goes
        // before them, and nothing is reserved.
        Some(successor) if successor.claim.fairness == Fairness::Fifo => (Some(successor), None),
        successor => (None, successor.as_ref()),
    };
    let early = early.map(|successor| place(view, successor));
    if !freed.is_empty() {
        view.request_wake();
        reserve_for_watchers(view, client);
    }
    let late = late.map(|successor| place(view, successor));
    ReleaseReply::Done {
        freed,
        others: Some(others),
        successor: early.or(late),
    }
}

fn check(request: &ReleaseRequest, limits: &Limits) -> Result<(), BackendError> {
    let successor = request.checked_successor()?;
    successor.map_or(Ok(()), |successor| successor.check(limits))
}

/// Places the successor, and grants it if no other client waits. If that fails, for example because the key is used
/// as another kind of lock, the release still succeeds: the successor gets the error from its next poll.
fn place_successor(view: &mut View, successor: &Successor, others: u32) -> AcquireReply {
    let policy = if others == 0 {
        GrantPolicy::Grant
    } else {
        GrantPolicy::Withhold
    };
    place_or_poll(view, &successor.claim, successor.not_after, policy).unwrap_or_else(|_| waiting(None, TURN))
}

/// Ends one claim for good. A claim without a row gets an `Ended` row, because its acquire request may still arrive.
fn end_claim(view: &mut View, id: ClaimId, request: &ReleaseRequest, freed: &mut Batch<HolderId>) {
    let now = view.now();
    let row_before = view.row(id).cloned();
    let remember = now + MAX_NOT_AFTER;
    let live_phase = row_before
        .as_ref()
        .filter(|row| row.is_unexpired(now))
        .map(|row| row.phase);
    let held = matches!(live_phase, Some(Phase::Waiting | Phase::Granted));
    if held {
        freed.push(HolderId::Claim(id));
    }
    let (phase, evictor) = match (&request.cause, &row_before) {
        // A claim that is already evicted keeps its first evictor.
        (_, Some(row)) if row.phase == Phase::Evicted => (Phase::Evicted, row.evictor.clone()),
        (Cause::Evicted { by }, Some(_)) if held => (Phase::Evicted, by.clone()),
        _ => (Phase::Ended, None),
    };
    // Only a holder could still hand its claim over locally, so the eviction of a waiter starts no cooldown.
    let cooldown = match live_phase {
        Some(Phase::Granted) => now + request.cooldown,
        _ => now,
    };
    let (expires_at, reserved_until) = match &row_before {
        Some(row) if row.phase == Phase::Evicted => {
            (row.expires_at.max(remember), row.reserved_until.max(cooldown))
        }
        // The row stays at least until the lease would have ended, so that the holder's next renewal finds the
        // eviction.
        Some(row) if phase == Phase::Evicted => (row.expires_at.max(remember), cooldown),
        _ => (remember, cooldown),
    };
    let row = row_before.unwrap_or_else(|| unplaced_row(id));
    view.put(Row {
        phase,
        expires_at,
        reserved_until,
        evictor,
        ..row
    });
}

/// Row of a claim that is released before its acquire request arrives.
fn unplaced_row(id: ClaimId) -> Row {
    Row {
        id,
        phase: Phase::Ended,
        mode: Mode::Exclusive,
        position: 0,
        expires_at: Instant::ORIGIN,
        reserved_until: Instant::ORIGIN,
        tokens: None,
        label: "".into(),
        evictor: None,
    }
}

/// Counts the queued claims and unfair waiters of other clients. An unfair waiter that missed its reservation does not
/// count, because its process may be dead.
fn count_others(view: &View, client: Option<ClientId>) -> u32 {
    let now = view.now();
    let elsewhere = |row: &&Row| Some(row.id.client()) != client;
    let watchers = view.watchers().filter(|row| !row.missed_reservation(now));
    let count = view.queue().chain(watchers).filter(elsewhere).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Reserves a freed key for [`TURN`] (10 ms) for the oldest unfair waiters of other clients that can hold it together.
/// So a client that acquires again at once does not starve them. Earlier reservations end, unless no other client waits.
/// Reserves nothing if claims are queued, because these go first.
fn reserve_for_watchers(view: &mut View, client: Option<ClientId>) {
    if view.queue().next().is_some() {
        return;
    }
    let now = view.now();
    let mut held: Vec<Mode> = view.holders().map(|row| row.mode).collect();
    let mut is_next = |row: &Row| {
        let is_next = !row.missed_reservation(now)
            && Some(row.id.client()) != client
            && row.mode.admits(held.iter().copied());
        if is_next {
            held.push(row.mode);
        }
        is_next
    };
    let watchers: Vec<(Row, bool)> = view.watchers().map(|row| (row.clone(), is_next(row))).collect();
    if !watchers.iter().any(|(_, is_next)| *is_next) {
        return;
    }
    let end = view.cooldown_until().unwrap_or(now) + TURN;
    for (row, is_next) in watchers {
        if is_next || now < row.reserved_until {
            let reserved_until = if is_next { end } else { Instant::ORIGIN };
            view.put(Row {
                reserved_until,
                ..row
            });
        }
    }
}
