//! From what workers wrote down to what they believed: renewals move the end of a belief, and death ends it.

use std::collections::HashMap;

use tenure::Instant;
use tenure_testkit::{Event, What};

use crate::attempts;
use crate::control::Worked;
use crate::line::{Note, Noted};

/// Lets each belief last until the latest deadline that its holder read: a renewal had moved it there.
pub(crate) fn extend(events: &mut [Event], notes: &[Note]) {
    let mut latest: HashMap<u64, Instant> = HashMap::new();
    for note in notes {
        if let Noted::Deadline { until, .. } = note.what {
            let known = latest.entry(note.attempt).or_insert(until);
            *known = until.max(*known);
        }
    }
    for event in events {
        if let What::Acquired { until, .. } = &mut event.what
            && let Some(latest) = latest.get(&event.attempt)
        {
            *until = latest.max(until).to_owned();
        }
    }
}

/// Ends what the dead believed and where they queued, at the moment at which they were known to be dead: the worker
/// cannot write that down itself.
pub(crate) fn bury(events: &mut Vec<Event>, worked: &[Worked]) {
    let dead = worked
        .iter()
        .filter_map(|worked| Some((worked.number, worked.died?)));
    let dead: HashMap<u64, Instant> = dead.collect();
    let begun = events.iter().filter_map(|event| match event.what {
        What::Invoked { .. } => Some(event.attempt),
        _ => None,
    });
    let ends: Vec<Event> = begun
        .filter_map(|attempt| {
            let at = *dead.get(&attempts::process_of(attempt))?;
            Some(Event {
                at,
                attempt,
                what: What::Lost,
            })
        })
        .collect();
    events.extend(ends);
}
