//! Computes the holding period of each attempt from the logs: renewals extend it, and the death of the process ends it.

use std::collections::HashMap;
use std::time::Duration;

use tenure::Instant;
use tenure_testkit::{Event, EventKind};

use crate::control::WorkerRun;
use crate::log::{Observation, ObservationKind, process_of};

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    /// Time at which the worker logged that the attempt waits in a queue.
    pub(super) queued: Option<Instant>,
    /// End of the attempt's wait: it was granted or refused, gave up, or its process died.
    pub(super) waited: Instant,
    /// Time of the grant; `None` without a grant, or if the grant came after its local deadline.
    pub(super) granted: Option<Instant>,
    /// Local deadline at the grant.
    pub(super) until: Instant,
    /// Latest local deadline that the guard reported.
    pub(super) extended: Instant,
    /// Lease of the claim in the store.
    pub(super) lease: Duration,
    /// Start of the release, or time of the loss or of the process's death.
    pub(super) ended: Instant,
}

/// Attempt whose events are not read yet.
const BEGUN: Attempt = Attempt {
    queued: None,
    waited: Instant::NEVER,
    granted: None,
    until: Instant::ORIGIN,
    extended: Instant::ORIGIN,
    lease: Duration::MAX,
    ended: Instant::NEVER,
};

/// Times of all attempts, by attempt number.
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

/// Adds a `lost` event to each attempt of a killed worker, at the time of its death, which the worker cannot log
/// itself. Attempts that had ended before keep their end.
pub(super) fn end_dead_attempts(events: &mut Vec<Event>, runs: &[WorkerRun]) {
    let dead = runs.iter().filter_map(|run| Some((run.number, run.died?)));
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
