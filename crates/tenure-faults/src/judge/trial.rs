//! The trial: the history of all workers together, as far as it can be held against the store, before the checker.

use tenure::backend::Hazard;
use tenure_testkit::{Event, EventKind, check};

use super::attempts::{attempts, bury};
use super::exemptions::Exemptions;
use super::finding::Finding;
use crate::control::{Deed, Worked};
use crate::log::{Note, Noted};

/// What was found, and what it was found in.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What the run is guilty of.
    pub findings: Vec<Finding>,
    /// How often a lock was granted.
    pub grants: usize,
    pub(crate) samples: usize,
    /// Writes that the fenced registers took.
    pub(crate) accepted: usize,
    /// Writes that they refused as older.
    pub refused: usize,
    /// Writes to the counters that nothing fences.
    pub(crate) bumped: usize,
    /// Waits in fair queues, and those of them that were disturbed.
    pub(crate) waits: usize,
    pub(crate) disturbed: usize,
    /// Attempts whose belief was pardoned.
    pub(crate) pardoned: usize,
}

/// Judges what the workers wrote down; `hazards` are those that the store's profile names.
pub(crate) fn judge(
    mut events: Vec<Event>,
    notes: &[Note],
    worked: &[Worked],
    deeds: &[Deed],
    hazards: &[Hazard],
) -> Verdict {
    let some = |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.kind)).count();
    let noted = |what: Noted| notes.iter().filter(|note| note.what == what).count();
    let mut verdict = Verdict {
        grants: some(|what| matches!(what, EventKind::Acquired { .. })),
        samples: some(|what| matches!(what, EventKind::Sampled { .. })),
        accepted: some(|what| matches!(what, EventKind::Accepted { .. })),
        refused: noted(Noted::Refused),
        bumped: noted(Noted::Bumped),
        ..Verdict::default()
    };
    bury(&mut events, worked);
    let attempts = attempts(&events, notes);
    let mut exemptions = Exemptions::default();
    exemptions.places(&attempts, &events, notes, worked, deeds);
    exemptions.beliefs(&attempts, deeds, hazards);
    exemptions.apply(&mut events);
    verdict.waits = attempts
        .values()
        .filter(|attempt| attempt.queued.is_some())
        .count();
    verdict.disturbed = exemptions.count(|exemption| exemption.place);
    verdict.pardoned = exemptions.count(|exemption| exemption.belief.is_some());
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
