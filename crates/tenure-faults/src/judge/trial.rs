//! The trial: the history of all workers together, as far as it can be held against the store, before the checker.

use tenure_testkit::{Event, What, check};

use super::evidence::Evidence;
use super::finding::Finding;
use super::order::{Judged, forget_the_disturbed};
use super::{history, pardon};
use crate::line::{Note, Noted};

/// What was found, and what it was found in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) findings: Vec<Finding>,
    pub(crate) grants: usize,
    pub(crate) samples: usize,
    pub(crate) nested: usize,
    /// Writes that the fenced register took, and those it refused as older.
    pub(crate) accepted: usize,
    pub(crate) refused: usize,
    /// Writes to the counters that nothing fences.
    pub(crate) bumped: usize,
    pub(crate) waits: Judged,
    pub(crate) pardoned: usize,
}

pub(crate) fn judge(evidence: Evidence) -> Verdict {
    let Evidence {
        mut events,
        notes,
        worked,
        deeds,
        hazards,
    } = evidence;
    let mut verdict = count(&events, &notes);
    history::bury(&mut events, &worked);
    verdict.waits = forget_the_disturbed(&mut events, &notes, &worked, &deeds);
    verdict.pardoned = pardon::pardon(&mut events, &notes, &deeds, hazards);
    history::extend(&mut events, &notes);
    if let Err(violations) = check(events) {
        verdict.findings = violations.into_iter().map(Finding::from).collect();
    }
    verdict
}

fn count(events: &[Event], notes: &[Note]) -> Verdict {
    let some = |is: fn(&What) -> bool| events.iter().filter(|event| is(&event.what)).count();
    let noted = |is: fn(&Noted) -> bool| notes.iter().filter(|note| is(&note.what)).count();
    Verdict {
        grants: some(|what| matches!(what, What::Acquired { .. })),
        samples: some(|what| matches!(what, What::Sampled { .. })),
        accepted: some(|what| matches!(what, What::Accepted { .. })),
        refused: noted(|what| matches!(what, Noted::Refused { .. })),
        nested: noted(|what| matches!(what, Noted::Nested)),
        bumped: noted(|what| matches!(what, Noted::Bumped)),
        ..Verdict::default()
    }
}
