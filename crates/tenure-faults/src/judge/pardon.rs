//! What a store does not promise is not held against it, and nothing more: which beliefs are pardoned, and from when.

use std::collections::HashMap;
use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_testkit::{Event, What};

use super::exemptions::Exemption;
use crate::control::Deed;
use crate::line::{Note, Noted};

/// What is known of an attempt that was granted.
#[derive(Clone, Copy, Debug)]
struct Granted {
    at: Instant,
    /// When it was confirmed by the store, at the latest.
    confirmed: Instant,
    /// When its release began or its loss was told.
    ended: Instant,
}

/// Exempts, from each moment at which something happened that the store names among its hazards, every belief there is.
///
/// - *The data is lost* ([`Hazard::DataLoss`]), or what was not on the disk ([`Hazard::Restart`]): the store knows nothing
///   of those who hold, and grants what they have to others. They learn it at their next renewal, and nobody promised
///   more. Those who were granted a lock before and told of it after are among them.
/// - *The clock is set forward* ([`Hazard::ClockSet`]): leases end that much early in the store, and their holders cannot
///   know.
///
/// From then on V1 and V2 are silent about those holders alone: whoever is granted a lock afterwards is judged in full, also
/// against others of that kind. V3 and V4 are never silent, but for this: a claim that was confirmed before the moment may
/// be passed on in its client's memory for 10 ms, with a token that is older than that of whom the store has
/// granted it to meanwhile; such a grant's token is not judged.
pub(crate) fn pardoned(
    events: &[Event],
    notes: &[Note],
    deeds: &[Deed],
    hazards: &[Hazard],
) -> Vec<Exemption> {
    let granted = granted(events, notes);
    let mut exemptions = Vec::new();
    let named = |deed: &&Deed| deed.hazard.is_some_and(|hazard| hazards.contains(&hazard));
    for deed in deeds.iter().filter(named) {
        for (&attempt, granted) in &granted {
            let before = granted.at <= deed.from;
            if granted.ended > deed.from && (before || granted.confirmed <= deed.to) {
                exemptions.push(Exemption::Belief(attempt, deed.from.max(granted.at)));
                if !before {
                    exemptions.push(Exemption::Token(attempt));
                }
            }
        }
    }
    exemptions
}

/// Every attempt that was granted, and is believed for at least a moment.
fn granted(events: &[Event], notes: &[Note]) -> HashMap<u64, Granted> {
    let mut leases: HashMap<u64, Duration> = HashMap::new();
    for note in notes {
        if let Noted::Deadline { lease, .. } = note.what {
            leases.insert(note.attempt, lease);
        }
    }
    let mut granted: HashMap<u64, Granted> = HashMap::new();
    for event in events {
        if let What::Acquired { until, .. } = event.what
            && until > event.at
        {
            // The store counts the whole lease, and belief less: so this is a little earlier than the truth.
            let lease = leases.get(&event.attempt).copied().unwrap_or(Duration::MAX);
            let one = Granted {
                at: event.at,
                confirmed: until - lease,
                ended: Instant::NEVER,
            };
            granted.insert(event.attempt, one);
        }
    }
    for event in events {
        if let What::ReleaseInvoked | What::Lost = event.what
            && let Some(one) = granted.get_mut(&event.attempt)
        {
            one.ended = one.ended.min(event.at);
        }
    }
    granted
}
