//! Interest: who has asked to be woken, and whether it is time to wake them.

use std::time::Duration;

use tenure_backend::{Claim, Fairness, Instant};

use super::acquire::{Admission, admission};
use super::{Phase, Row, View};

/// For how long a registration lasts unless it is renewed: a watcher whose process died counts for so long.
const REGISTRATION: Duration = Duration::from_secs(10);

/// How often a registration is to be renewed.
pub(crate) const REFRESH: Duration = Duration::from_secs(3);

/// Whether a claim that waits should poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPoll {
    /// It should: it may go, or it is no longer what it was.
    Now,
    /// Not before then, unless something changes.
    From(Instant),
    /// Not until something changes.
    OnChange,
}

/// Registers a claim's interest, or renews the registration. A claim that queues, holds or has ended needs none.
pub(crate) fn watch(view: &mut View, claim: &Claim) {
    let now = view.now();
    let (position, reserved_until) = match view.row(claim.at.id) {
        Some(row) if row.phase != Phase::Watching => return,
        Some(row) if row.is_unexpired(now) && now < row.reserved_until => (row.position, row.reserved_until),
        Some(row) if row.is_unexpired(now) => (row.position, Instant::ORIGIN),
        _ => (i64::try_from(now.as_nanos()).unwrap_or(i64::MAX), Instant::ORIGIN),
    };
    if claim.fairness == Fairness::Fifo {
        return;
    }
    view.put(Row {
        reserved_until,
        ..Row::new(claim, Phase::Watching, position, now + REGISTRATION)
    });
}

/// Takes the registration back. Whatever else the claim is, it stays.
pub(crate) fn unwatch(view: &mut View, claim: &Claim) {
    if view
        .row(claim.at.id)
        .is_some_and(|row| row.phase == Phase::Watching)
    {
        view.remove(claim.at.id);
    }
}

/// Whether the claim should poll. Reads only.
pub(crate) fn next_poll(view: &View, claim: &Claim) -> NextPoll {
    let now = view.now();
    let position = match view.row(claim.at.id) {
        Some(row) if row.phase == Phase::Granted && row.is_unexpired(now) => return NextPoll::OnChange,
        Some(row) if row.has_ended(now) => return NextPoll::Now,
        Some(row) if row.phase == Phase::Waiting => Some(row.position),
        // It was too slow; asking shows that it is alive, so that it has the next turn.
        Some(row) if row.missed_reservation(now) => return NextPoll::Now,
        _ if claim.fairness == Fairness::Fifo => return NextPoll::Now,
        _ => None,
    };
    match admission(view, claim.at.id.client(), claim.mode, position) {
        Admission::Now => NextPoll::Now,
        Admission::From(at) => NextPoll::From(at),
        Admission::Blocked => NextPoll::OnChange,
    }
}
