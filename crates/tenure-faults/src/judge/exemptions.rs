//! What is not held against a store: a list, applied to the history before the checker reads it.

use std::collections::{HashMap, HashSet};

use tenure::Instant;
use tenure_testkit::{Event, What};

/// Something about one attempt that is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exemption {
    /// Its place in a queue (L3).
    Place(u64),
    /// Its belief from that moment on (V1, V2).
    Belief(u64, Instant),
    /// Its token (V3).
    Token(u64),
}

/// Removes from the history what these exempt.
pub(crate) fn apply(events: &mut Vec<Event>, exemptions: &[Exemption]) {
    let (mut places, mut tokens) = (HashSet::new(), HashSet::new());
    let mut ends: HashMap<u64, Instant> = HashMap::new();
    for exemption in exemptions {
        match *exemption {
            Exemption::Place(attempt) => drop(places.insert(attempt)),
            Exemption::Token(attempt) => drop(tokens.insert(attempt)),
            Exemption::Belief(attempt, from) => {
                let end = ends.entry(attempt).or_insert(from);
                *end = from.min(*end);
            }
        }
    }
    events.retain(|event| match event.what {
        What::Queued => !places.contains(&event.attempt),
        What::Sampled { held: true, .. } => ends.get(&event.attempt).is_none_or(|end| event.at < *end),
        _ => true,
    });
    for event in events.iter_mut() {
        if let What::Acquired { token, .. } = &mut event.what
            && tokens.contains(&event.attempt)
        {
            *token = None;
        }
    }
    events.extend(ends.iter().map(|(&attempt, &at)| Event {
        at,
        attempt,
        what: What::Lost,
    }));
}
