//! `acquire`: places or polls a claim, and the one decision who may go.

use std::time::Duration;

use tenure_backend::{AcquireReply, BackendError, Claim, ClientId, Fairness, Grant, Instant, Mode};

use super::{Phase, Row, View};
use crate::profile::LIMITS;

/// The shortest time between two polls that the store advises.
const MIN_POLL: Duration = Duration::from_millis(1);

/// Whether a claim may have its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Now,
    /// Nothing but time is in the way: a cooldown, or another client's turn.
    From(Instant),
    /// Somebody holds the key or is before it.
    Behind,
}

/// Whether a claim that could go lets those of other clients go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manners {
    Goes,
    Yields,
}

/// Places the claim, or polls it. On an error the view is as it was.
pub(crate) fn acquire(
    view: &mut View,
    claim: &Claim,
    not_after: Instant,
) -> Result<AcquireReply, BackendError> {
    attempt(view, claim, not_after, Manners::Goes)
}

pub(super) fn attempt(
    view: &mut View,
    claim: &Claim,
    not_after: Instant,
    manners: Manners,
) -> Result<AcquireReply, BackendError> {
    claim.check(&LIMITS)?;
    let now = view.now();
    let known = view.row(claim.at.id).cloned();
    let place = match &known {
        Some(row) if row.is_over(now) => return Ok(AcquireReply::Ended),
        Some(row) if row.phase == Phase::Granted => {
            return Ok(granted(
                view,
                claim,
                Row {
                    until: now + lease(claim),
                    ..row.clone()
                },
            ));
        }
        Some(row) if row.phase == Phase::Waiting => Some(row.place),
        _ if not_after < now => return Ok(AcquireReply::TooLate),
        _ => {
            view.check_kind(claim.mode)?;
            None
        }
    };
    let admission = admission(view, claim.at.id.client(), claim.mode, place);
    if manners == Manners::Goes && view.barred_until().is_none() {
        take_turns(view, claim.at.id.client());
    }
    match admission {
        Admission::Now if manners == Manners::Goes => {
            let tokens = Some(view.draw(claim.grants)?);
            let row = Row {
                tokens,
                ..Row::of(claim, Phase::Granted, 0, now + lease(claim))
            };
            if place.is_some() {
                // Those behind it may hold beside it, such as the next reader.
                view.stir();
            }
            Ok(granted(view, claim, row))
        }
        Admission::Now => Ok(refused(view, claim, known, place, now)),
        Admission::From(at) => Ok(refused(view, claim, known, place, at)),
        Admission::Behind => {
            let at = first_end(view, claim.mode, place);
            Ok(refused(view, claim, known, place, at))
        }
    }
}

fn refused(
    view: &mut View,
    claim: &Claim,
    known: Option<Row>,
    place: Option<i64>,
    at: Instant,
) -> AcquireReply {
    match claim.fairness {
        Fairness::Fifo => queued(view, claim, place, at),
        Fairness::Unfair => {
            keep_watching(view, known);
            waiting(None, at - view.now())
        }
    }
}

/// Whether a claim of that client and mode may hold the key beside those who do. `place` is its place in the
/// queue, if it has one. Who is behind another in the queue learns so without a look at the others.
pub(super) fn admission(view: &View, client: ClientId, mode: Mode, place: Option<i64>) -> Admission {
    let held = || view.holders().map(|row| row.mode);
    if before(view, place).next().is_some() || !mode.admits(held()) {
        return Admission::Behind;
    }
    let turns = || view.turns(client);
    let kept = if mode.admits(held().chain(turns().map(|row| row.mode))) {
        None
    } else {
        turns().map(|row| row.reserved).max()
    };
    match kept.max(view.barred_until()) {
        Some(until) => Admission::From(until),
        None => Admission::Now,
    }
}

/// The members of the queue before that place, or all of them.
fn before(view: &View, place: Option<i64>) -> impl Iterator<Item = &Row> {
    view.queue()
        .take_while(move |row| place.is_none_or(|place| row.place < place))
}

/// When the first lease ends of those that a claim is [`Behind`](Admission::Behind).
fn first_end(view: &View, mode: Mode, place: Option<i64>) -> Instant {
    let holders = || view.holders().map(|row| row.until);
    let queue = before(view, place).map(|row| row.until);
    let first = if mode.admits(view.holders().map(|row| row.mode)) {
        queue.min()
    } else {
        holders().chain(queue).min()
    };
    first.unwrap_or(view.now())
}

/// The answer to a claim that has to wait until `at` at the least.
pub(super) fn waiting(ahead: Option<u32>, time: Duration) -> AcquireReply {
    AcquireReply::Waiting {
        ahead,
        poll_after: time.max(MIN_POLL),
    }
}

fn lease(claim: &Claim) -> Duration {
    LIMITS.lease(claim.lease)
}

fn granted(view: &mut View, claim: &Claim, row: Row) -> AcquireReply {
    let tokens = row.tokens;
    view.put(row);
    AcquireReply::Granted(Grant {
        tokens,
        held_from: view.now(),
        lease: lease(claim),
        evidence: None,
    })
}

/// Restarts the waiting lease at the claim's place, or at the tail.
fn queued(view: &mut View, claim: &Claim, place: Option<i64>, at: Instant) -> AcquireReply {
    let now = view.now();
    let tail = || view.queue().next_back().map_or(1, |last| last.place + 1);
    let place = place.unwrap_or_else(tail);
    let ahead = before(view, Some(place)).count();
    view.put(Row::of(claim, Phase::Waiting, place, now + lease(claim)));
    let ahead = Some(u32::try_from(ahead).unwrap_or(u32::MAX));
    waiting(ahead, (at - now).min(lease(claim) / 3))
}

/// The client has asked: the key is no longer kept for it.
fn take_turns(view: &mut View, client: ClientId) {
    let now = view.now();
    let of_client = |row: &&Row| row.id.client() == client && now < row.reserved;
    let turns: Vec<Row> = view.watchers().filter(of_client).cloned().collect();
    for row in turns {
        view.put(Row {
            reserved: Instant::ORIGIN,
            ..row
        });
    }
}

/// A watcher that asks is heard of: a turn that it missed is forgiven, and it keeps its seniority.
fn keep_watching(view: &mut View, known: Option<Row>) {
    let now = view.now();
    if let Some(row) = known.filter(|row| row.missed_its_turn(now)) {
        view.put(Row {
            reserved: Instant::ORIGIN,
            ..row
        });
    }
}
