//! Whose place in a queue can be judged: a waiter that was disturbed may have lost it, and nobody promised otherwise.

use std::collections::HashMap;
use std::time::Duration;

use tenure::Instant;
use tenure_testkit::{Event, What};

use super::exemptions::Exemption;
use crate::attempts;
use crate::control::{Deed, Whom, Worked};
use crate::keys::LONGEST_LEASE;
use crate::line::{Note, Noted};

/// For so long after its process stood still a waiter may be passed over: an offer goes on after 100 ms.
const AFTERMATH: Duration = Duration::from_millis(200);

/// Whoever waits asks at least three times a lease, so a store that answers nobody for so long may end their claims: a disk
/// that takes seconds to write, under a load that leaves it no choice.
const STANDSTILL: Duration = LONGEST_LEASE.checked_div(2).unwrap();

/// How long a client takes to notice that nothing it sends on a connection is answered any more: a store's time limit for a
/// call, and a quarter. Until then those who wait are in no queue, and are told that they wait when it is noticed.
const NOTICED: Duration = Duration::from_secs(4);

/// A time during which waiters may have lost their places.
type Span = (Instant, Instant);

/// All waits in queues, and which of them were disturbed.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(crate) all: usize,
    pub(crate) disturbed: Vec<Exemption>,
}

/// Exempts the places of those who were disturbed while they waited: whose process was paused, killed or stood still, whose
/// link or store suffered anything or answered nobody, up to a lease after. Their claims may have ended in the store, and
/// they queue again at the tail.
pub(crate) fn waits(events: &[Event], notes: &[Note], worked: &[Worked], deeds: &[Deed]) -> Waits {
    let mut spans = disturbances(notes, worked, deeds);
    for still in standstills(events) {
        spans.values_mut().for_each(|spans| spans.push(still));
    }
    let mut waits: HashMap<u64, Span> = HashMap::new();
    for event in events.iter() {
        if event.what == What::Queued {
            waits.insert(event.attempt, (event.at, Instant::NEVER));
        }
    }
    for event in events.iter() {
        let ends = matches!(
            event.what,
            What::Acquired { .. } | What::Failed | What::Unknown | What::Lost
        );
        if let Some((_, end)) = waits.get_mut(&event.attempt).filter(|_| ends) {
            *end = event.at.min(*end);
        }
    }
    let is_disturbed = |attempt: &u64, wait: &Span| {
        let spans = spans.get(&attempts::process_of(*attempt));
        spans.is_some_and(|spans| spans.iter().any(|span| span.0 <= wait.1 && wait.0 <= span.1))
    };
    let disturbed = waits.iter().filter(|(attempt, wait)| is_disturbed(attempt, wait));
    Waits {
        all: waits.len(),
        disturbed: disturbed.map(|(attempt, _)| Exemption::Place(*attempt)).collect(),
    }
}

/// When the store answered nobody for long, and a lease after that.
fn standstills(events: &[Event]) -> Vec<Span> {
    let answers =
        |event: &&Event| matches!(event.what, What::Queued | What::Acquired { .. } | What::Released);
    let mut answered: Vec<Instant> = events.iter().filter(answers).map(|event| event.at).collect();
    answered.sort();
    let gaps = answered.iter().zip(answered.iter().skip(1));
    gaps.filter(|(before, after)| **after - **before > STANDSTILL)
        .map(|(before, after)| (*before, *after + LONGEST_LEASE))
        .collect()
}

/// For each process, when it was disturbed.
fn disturbances(notes: &[Note], worked: &[Worked], deeds: &[Deed]) -> HashMap<u64, Vec<Span>> {
    let mut spans: HashMap<u64, Vec<Span>> = HashMap::new();
    for worked in worked {
        let own = deeds
            .iter()
            .filter(|deed| [Whom::Everybody, Whom::Seat(worked.seat)].contains(&deed.whom));
        let own = own.map(|deed| (deed.from, deed.to + unnoticed(deed) + LONGEST_LEASE));
        let death = worked.died.map(|died| (died, Instant::NEVER));
        spans.insert(worked.number, own.chain(death).collect());
    }
    // A process may have written its stalls down in its own log alone, which names it by its attempts.
    for note in notes {
        if let Noted::Stalled { since } = note.what {
            let span = (since, note.at + AFTERMATH);
            spans
                .entry(attempts::process_of(note.attempt))
                .or_default()
                .push(span);
        }
    }
    spans
}

/// For how long a deed is felt without being seen: bytes that were swallowed are missed only when no answer comes.
fn unnoticed(deed: &Deed) -> Duration {
    let swallows = ["HalfOpen", "Swallow"]
        .iter()
        .any(|word| deed.what.starts_with(word));
    if swallows { NOTICED } else { Duration::ZERO }
}
