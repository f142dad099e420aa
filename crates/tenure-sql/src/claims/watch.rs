//! `watch`: registers unfair claims that want wake-ups, and decides when a waiting claim should poll.

use std::time::Duration;

use tenure_backend::{Claim, Fairness, Instant};

use super::acquire::{Admission, admission};
use super::{Phase, Row, View};

/// How long an unfair waiter stays registered. After its process dies, it counts as a waiter for up to this long.
const REGISTRATION_LEASE: Duration = Duration::from_secs(10);

/// How often a process renews the registrations of its unfair waiters: three times in their 10 s.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(3);

/// When a waiting claim should poll. The claim's subscribers are woken at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextPoll {
    /// At once: the claim can be granted or has ended, or a poll must update its row.
    Now,
    /// At this time, or earlier if the rows of the key change.
    From(Instant),
    /// When the rows of the key change.
    OnChange,
}

/// Registers an unfair claim for wake-ups, or renews its registration. Does nothing for a fair claim, and for one that
/// is granted or has ended.
pub(crate) fn watch(view: &mut View, claim: &Claim) {
    let now = view.now();
    let (position, reserved_until) = match view.row(claim.at.id) {
        Some(row) if row.phase != Phase::Watching => return,
        // A renewed registration proves that the process is alive, but not that it polls.
        Some(row) if row.is_unexpired(now) => (row.position, row.reserved_until),
        _ => (i64::try_from(now.as_nanos()).unwrap_or(i64::MAX), Instant::ORIGIN),
    };
    if claim.fairness == Fairness::Fifo {
        return;
    }
    view.put(Row {
        reserved_until,
        ..Row::new(claim, Phase::Watching, position, now + REGISTRATION_LEASE)
    });
}

/// Deletes the registration of an unfair claim, but no queued, granted or ended row.
pub(crate) fn unwatch(view: &mut View, claim: &Claim) {
    if view
        .row(claim.at.id)
        .is_some_and(|row| row.phase == Phase::Watching)
    {
        view.remove(claim.at.id);
    }
}

/// Decides when a waiting claim should poll. Changes nothing.
pub(crate) fn next_poll(view: &View, claim: &Claim) -> NextPoll {
    let now = view.now();
    let position = match view.row(claim.at.id) {
        Some(row) if row.phase == Phase::Granted && row.is_unexpired(now) => return NextPoll::OnChange,
        Some(row) if row.has_ended(now) => return NextPoll::Now,
        Some(row) if row.phase == Phase::Waiting => Some(row.position),
        // The key was reserved for this unfair waiter, which did not poll in time. A poll proves that its process is
        // alive, so the key can be reserved for it again.
        Some(row) if row.missed_reservation(now) => return NextPoll::Now,
        _ if claim.fairness == Fairness::Fifo => return NextPoll::Now,
        _ => None,
    };
    match admission(view, claim, position) {
        Admission::Now => NextPoll::Now,
        Admission::From(at) => NextPoll::From(at),
        Admission::Blocked => NextPoll::OnChange,
    }
}
