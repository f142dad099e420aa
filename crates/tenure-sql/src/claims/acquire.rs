//! `acquire`: places or polls a claim, and decides whether a claim is granted.

use std::time::Duration;

use tenure_backend::{AcquireReply, BackendError, Claim, ClaimId, Fairness, Grant, Instant, Mode, TURN};

use super::{Phase, Row, View};

/// Minimum of `poll_after` in a reply.
const MIN_POLL: Duration = Duration::from_millis(1);

/// Whether a claim can be granted, given the other claims of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The claim may be granted now.
    Now,
    /// The claim may be granted at this time. Until then, a cooldown lasts, or the key is reserved for waiters of
    /// another client.
    From(Instant),
    /// A holder excludes the claim, or another claim is ahead of it in the queue.
    Blocked,
}

/// Whether this call may grant a claim for which [`Admission::Now`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrantPolicy {
    Grant,
    /// Do not grant the claim, because waiters of other clients go first.
    Withhold,
}

/// Places the claim, or polls it if it has a row. An error does not change the claim's phase.
pub(crate) fn acquire(
    view: &mut View,
    claim: &Claim,
    not_after: Instant,
) -> Result<AcquireReply, BackendError> {
    place_or_poll(view, claim, not_after, GrantPolicy::Grant)
}

pub(super) fn place_or_poll(
    view: &mut View,
    claim: &Claim,
    not_after: Instant,
    policy: GrantPolicy,
) -> Result<AcquireReply, BackendError> {
    claim.check(&view.profile.limits)?;
    let now = view.now();
    let row_before = view.row(claim.at.id).cloned();
    let position = match &row_before {
        Some(row) if row.has_ended(now) => return Ok(AcquireReply::Ended),
        Some(row) if row.phase == Phase::Granted => {
            return Ok(granted(
                view,
                claim,
                Row {
                    expires_at: now + lease(view, claim),
                    ..row.clone()
                },
            ));
        }
        Some(row) if row.phase == Phase::Waiting => Some(row.position),
        _ if not_after < now => return Ok(AcquireReply::TooLate),
        _ => {
            view.check_kind(claim.mode)?;
            None
        }
    };
    let admission = admission(view, claim, position);
    // Nothing is written before this, the last step that can fail.
    let tokens = match (admission, policy) {
        (Admission::Now, GrantPolicy::Grant) => Some(view.draw(claim.grants)?),
        _ => None,
    };
    if policy == GrantPolicy::Grant && view.cooldown_until().is_none() {
        end_reservation(view, claim.at.id);
    }
    match admission {
        Admission::Now if tokens.is_some() => {
            let row = Row {
                tokens,
                ..Row::new(claim, Phase::Granted, 0, now + lease(view, claim))
            };
            if position.is_some() {
                // The next claims in the queue may be able to hold the key too, such as more readers.
                view.request_wake();
            }
            Ok(granted(view, claim, row))
        }
        // The claim could be granted, but yields.
        Admission::Now => Ok(refused(view, claim, row_before, position, now + TURN)),
        Admission::From(at) => Ok(refused(view, claim, row_before, position, at)),
        Admission::Blocked => {
            let at = first_expiry(view, claim.mode, position);
            Ok(refused(view, claim, row_before, position, at))
        }
    }
}

/// Reply to a claim that is not granted. Queues a fair claim. `at` is the earliest time at which a poll can
/// succeed without a release.
fn refused(
    view: &mut View,
    claim: &Claim,
    row_before: Option<Row>,
    position: Option<i64>,
    at: Instant,
) -> AcquireReply {
    match claim.fairness {
        Fairness::Fifo => queued(view, claim, position, at),
        Fairness::Unfair => {
            forgive_missed_reservation(view, row_before);
            waiting(None, at - view.now())
        }
    }
}

/// Decides whether a claim can be granted. `position` is its position in the queue, if it is queued. Checks the queue
/// first, so that a claim behind others in a long queue is answered quickly.
pub(super) fn admission(view: &View, claim: &Claim, position: Option<i64>) -> Admission {
    let mode = claim.mode;
    let held = || view.holders().map(|row| row.mode);
    if queue_before(view, position).next().is_some() || !mode.admits(held()) {
        return Admission::Blocked;
    }
    let reservations = || view.reservations_against(claim);
    let reserved_until = if mode.admits(held().chain(reservations().map(|row| row.mode))) {
        None
    } else {
        reservations().map(|row| row.reserved_until).max()
    };
    match reserved_until.max(view.cooldown_until()) {
        Some(until) => Admission::From(until),
        None => Admission::Now,
    }
}

/// Queued claims ahead of this position; the whole queue for `None`.
fn queue_before(view: &View, position: Option<i64>) -> impl Iterator<Item = &Row> {
    view.queue()
        .take_while(move |row| position.is_none_or(|position| row.position < position))
}

/// Earliest end of a lease that keeps a claim [`Blocked`](Admission::Blocked): the lease of a claim ahead in the
/// queue, or of a holder if the holders exclude the claim.
fn first_expiry(view: &View, mode: Mode, position: Option<i64>) -> Instant {
    let holders = || view.holders().map(|row| row.expires_at);
    let queue = queue_before(view, position).map(|row| row.expires_at);
    let first = if mode.admits(view.holders().map(|row| row.mode)) {
        queue.min()
    } else {
        holders().chain(queue).min()
    };
    first.unwrap_or(view.now())
}

/// Reply to a claim that must wait. Without a wake-up, the claim should poll after `time`.
pub(super) fn waiting(ahead: Option<u32>, time: Duration) -> AcquireReply {
    AcquireReply::Waiting {
        ahead,
        poll_after: time.max(MIN_POLL),
    }
}

fn lease(view: &View, claim: &Claim) -> Duration {
    view.profile.limits.lease(claim.lease)
}

fn granted(view: &mut View, claim: &Claim, row: Row) -> AcquireReply {
    let tokens = row.tokens;
    view.put(row);
    let held_from = view.now();
    AcquireReply::Granted(Grant::new(tokens, held_from, lease(view, claim)))
}

/// Gives a queued claim a new lease, or appends a claim without a `position` to the queue.
fn queued(view: &mut View, claim: &Claim, position: Option<i64>, at: Instant) -> AcquireReply {
    let now = view.now();
    let tail = || view.queue().next_back().map_or(1, |last| last.position + 1);
    let position = position.unwrap_or_else(tail);
    let ahead = queue_before(view, Some(position)).count();
    view.put(Row::new(
        claim,
        Phase::Waiting,
        position,
        now + lease(view, claim),
    ));
    let ahead = Some(u32::try_from(ahead).unwrap_or(u32::MAX));
    waiting(ahead, (at - now).min(lease(view, claim) / 3))
}

/// Ends the time for which the key is reserved for this claim, because the claim is polled.
fn end_reservation(view: &mut View, id: ClaimId) {
    let now = view.now();
    if let Some(row) = view
        .row(id)
        .filter(|row| row.phase == Phase::Watching && now < row.reserved_until)
    {
        let reserved_until = Instant::ORIGIN;
        view.put(Row {
            reserved_until,
            ..row.clone()
        });
    }
}

/// If an unfair waiter did not poll while the key was reserved for it, lets the key be reserved for it again: its poll
/// proves that its process is alive. The waiter keeps its time of registration, and so goes before waiters that
/// registered later.
fn forgive_missed_reservation(view: &mut View, row_before: Option<Row>) {
    let now = view.now();
    if let Some(row) = row_before.filter(|row| row.missed_reservation(now)) {
        view.put(Row {
            reserved_until: Instant::ORIGIN,
            ..row
        });
    }
}
