//! Removes from the merged history of all workers what the injected faults excuse, then runs the checker.

use std::time::Duration;

use tenure::backend::Hazard;
use tenure_testkit::{Event, EventKind, check};

use super::attempts::{attempts, end_dead_attempts};
use super::exemptions::Exemptions;
use super::finding::Finding;
use crate::control::WorkerRun;
use crate::fault::InjectedFault;
use crate::log::{Observation, ObservationKind};

/// Findings and counts of a run.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Violations of the laws.
    pub findings: Vec<Finding>,
    /// Number of grants.
    pub grants: usize,
    pub(crate) samples: usize,
    /// Writes that the fenced registers accepted.
    pub(crate) accepted: usize,
    /// Writes that the fenced registers refused because of older tokens.
    pub refused: usize,
    /// Writes to the unfenced counters.
    pub(crate) bumped: usize,
    /// Number of waits in fair queues. `disturbed` counts those whose order is not checked, because of a fault
    /// or a stall.
    pub(crate) waits: usize,
    pub(crate) disturbed: usize,
    /// Number of attempts whose holding period is checked only up to a fault that is one of the store's hazards.
    pub(crate) exempted: usize,
}

/// Checks the logs of the workers. `hazards` are those that the store's profile lists. `longest_lease` is that of the run.
pub(crate) fn judge(
    mut events: Vec<Event>,
    notes: &[Observation],
    runs: &[WorkerRun],
    fault_log: &[InjectedFault],
    hazards: &[Hazard],
    longest_lease: Duration,
) -> Verdict {
    let some = |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.kind)).count();
    let noted = |what: ObservationKind| notes.iter().filter(|note| note.what == what).count();
    let mut verdict = Verdict {
        grants: some(|what| matches!(what, EventKind::Acquired { .. })),
        samples: some(|what| matches!(what, EventKind::Sampled { .. })),
        accepted: some(|what| matches!(what, EventKind::Accepted { .. })),
        refused: noted(ObservationKind::Refused),
        bumped: noted(ObservationKind::Bumped),
        ..Verdict::default()
    };
    end_dead_attempts(&mut events, runs);
    let attempts = attempts(&events, notes);
    let mut exemptions = Exemptions::default();
    exemptions.places(&attempts, &events, notes, runs, fault_log, longest_lease);
    exemptions.holding_periods(&attempts, fault_log, hazards);
    exemptions.apply(&mut events);
    verdict.waits = attempts
        .values()
        .filter(|attempt| attempt.queued.is_some())
        .count();
    verdict.disturbed = exemptions.count(|exemption| exemption.place);
    verdict.exempted = exemptions.count(|exemption| exemption.holding.is_some());
    for event in &mut events {
        if let EventKind::Acquired { until, .. } = &mut event.kind {
            *until = attempts[&event.attempt].extended.max(*until);
        }
    }
    if let Err(violations) = check(events) {
        verdict.findings = violations.into_iter().map(Finding::from).collect();
    }
    verdict
}
