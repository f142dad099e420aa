//! Computes the holding period of each attempt from the logs: renewals extend it, and the death of the process ends it.

use std::collections::HashMap;
use std::time::Duration;

use tenure::Instant;
use tenure_testkit::{Event, EventKind};

use crate::control::WorkerRun;
use crate::log::{Observation, ObservationKind, process_of};

/// Times of one attempt, as the logs show them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// Time of its last `queued` event: from then on, the attempt was known to wait in a queue.
    pub(super) queued: Option<Instant>,
    /// Time at which the attempt stopped waiting: it was granted or refused, gave up, or its process died.
    pub(super) waited: Instant,
    /// Time of the grant. `None` without a grant, or if the local deadline had already passed.
    pub(super) granted: Option<Instant>,
    /// Local deadline at the time of the grant.
    pub(super) until: Instant,
    /// Latest local deadline that the guard reported, which renewals move.
    pub(super) extended: Instant,
    /// Lease of the claim in the store.
    pub(super) lease: Duration,
    /// Time at which the release began, the holder learned of a loss, or the process died.
    pub(super) ended: Instant,
}

/// Times of an attempt of which no event has been read yet.
const BEGUN: Attempt = Attempt {
    queued: None,
    waited: Instant::NEVER,
    granted: None,
    until: Instant::ORIGIN,
    extended: Instant::ORIGIN,
    lease: Duration::MAX,
    ended: Instant::NEVER,
};

/// Returns the times of all attempts, by the attempts' numbers.
pub(super) fn attempts(events: &[Event], notes: &[Observation]) -> HashMap<u64, Attempt> {
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
        if let ObservationKind::Deadline { until, lease } = note.what {
            let attempt = attempts.entry(note.attempt).or_insert(BEGUN);
            attempt.extended = attempt.extended.max(until);
            attempt.lease = lease;
        }
    }
    attempts
}

/// Adds a `lost` event for each attempt of a killed worker, at the time of its death. The dead worker cannot log the
/// event.
pub(super) fn end_dead_attempts(events: &mut Vec<Event>, worked: &[WorkerRun]) {
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
