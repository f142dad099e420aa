//! The trial: the history of all workers together, as far as it can be held against the store, before the checker.

use tenure::backend::Hazard;
use tenure_testkit::{Event, What, check};

use super::exemptions::{Exemption, apply};
use super::finding::Finding;
use super::history;
use super::order::waits;
use super::pardon::pardoned;
use crate::control::{Deed, Worked};
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
    /// Waits in fair queues, and those of them that were disturbed.
    pub(crate) waits: usize,
    pub(crate) disturbed: usize,
    pub(crate) pardoned: usize,
}

/// Judges what the workers and the register wrote down; `hazards` are those that the store's profile names.
pub(crate) fn judge(
    mut events: Vec<Event>,
    notes: &[Note],
    worked: &[Worked],
    deeds: &[Deed],
    hazards: &[Hazard],
) -> Verdict {
    let mut verdict = count(&events, notes);
    history::bury(&mut events, worked);
    let waits = waits(&events, notes, worked, deeds);
    let pardoned = pardoned(&events, notes, deeds, hazards);
    let beliefs = |exemption: &&Exemption| matches!(exemption, Exemption::Belief(..));
    verdict.waits = waits.all;
    verdict.disturbed = waits.disturbed.len();
    verdict.pardoned = pardoned.iter().filter(beliefs).count();
    apply(&mut events, &[waits.disturbed, pardoned].concat());
    history::extend(&mut events, notes);
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
        refused: noted(|what| matches!(what, Noted::Refused)),
        nested: noted(|what| matches!(what, Noted::Nested)),
        bumped: noted(|what| matches!(what, Noted::Bumped)),
        ..Verdict::default()
    }
}
