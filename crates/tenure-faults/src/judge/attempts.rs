//! From what workers wrote down to what each attempt believed: renewals move the end of a belief, and death ends it.

use std::collections::HashMap;
use std::time::Duration;

use tenure::Instant;
use tenure_testkit::{Event, EventKind};

use crate::control::Worked;
use crate::log::{Note, Noted, process_of};

/// What is known of one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// When it was known to stand in a queue, last.
    pub(super) queued: Option<Instant>,
    /// When it waited no longer: it was answered, given up, or its process died.
    pub(super) waited: Instant,
    /// When it was granted, if it was believed for at least a moment.
    pub(super) granted: Option<Instant>,
    /// The local deadline that came with the grant.
    pub(super) until: Instant,
    /// The latest deadline that its holder read: a renewal had moved it there.
    pub(super) extended: Instant,
    /// How long the store keeps it.
    pub(super) lease: Duration,
    /// When its release began or its loss was told.
    pub(super) ended: Instant,
}

/// An attempt that nothing has happened to.
const BEGUN: Attempt = Attempt {
    queued: None,
    waited: Instant::NEVER,
    granted: None,
    until: Instant::ORIGIN,
    extended: Instant::ORIGIN,
    lease: Duration::MAX,
    ended: Instant::NEVER,
};

/// All attempts by their numbers.
pub(super) fn attempts(events: &[Event], notes: &[Note]) -> HashMap<u64, Attempt> {
    let mut attempts = HashMap::new();
    for event in events {
        let attempt = attempts.entry(event.attempt).or_insert(BEGUN);
        match event.kind {
            EventKind::Queued => attempt.queued = Some(event.at),
            EventKind::Acquired { until, .. } => {
                attempt.granted = Some(event.at).filter(|at| *at < until);
                attempt.until = until;
            }
            EventKind::ReleaseInvoked | EventKind::Lost => attempt.ended = attempt.ended.min(event.at),
            _ => {}
        }
        if let EventKind::Acquired { .. } | EventKind::Failed | EventKind::Unknown | EventKind::Lost =
            event.kind
        {
            attempt.waited = attempt.waited.min(event.at);
        }
    }
    for note in notes {
        if let Noted::Deadline { until, lease } = note.what {
            let attempt = attempts.entry(note.attempt).or_insert(BEGUN);
            attempt.extended = attempt.extended.max(until);
            attempt.lease = lease;
        }
    }
    attempts
}

/// Ends what the dead believed and where they queued, at the moment at which they were known to be dead: the worker
/// cannot write that down itself.
pub(super) fn bury(events: &mut Vec<Event>, worked: &[Worked]) {
    let dead = worked
        .iter()
        .filter_map(|worked| Some((worked.number, worked.died?)));
    let dead: HashMap<u64, Instant> = dead.collect();
    let begun = events.iter().filter_map(|event| match event.kind {
        EventKind::Invoked { .. } => Some(event.attempt),
        _ => None,
    });
    let what = EventKind::Lost;
    let lost = begun.filter_map(|attempt| {
        let at = *dead.get(&process_of(attempt))?;
        Some(Event {
            at,
            attempt,
            kind: what.clone(),
        })
    });
    let lost: Vec<Event> = lost.collect();
    events.extend(lost);
}
