//! What is not held against a store: a list, applied to the history before the checker reads it.

use std::collections::HashMap;
use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_testkit::{Event, EventKind};

use super::attempts::Attempt;
use crate::control::{Deed, Whom, Worked};
use crate::keys::LONGEST_LEASE;
use crate::log::{Note, Noted, process_of};

/// For so long after its process stood still a waiter may be passed over: an offer goes on after 100 ms.
const AFTERMATH: Duration = Duration::from_millis(200);

/// A waiter asks at least three times a lease, so a store that answers no call for so long may end its claim: a disk
/// that takes seconds to write, under a load that leaves it no choice.
const STANDSTILL: Duration = LONGEST_LEASE.checked_div(2).unwrap();

/// How long a client takes to notice that nothing it sends on a connection is answered any more: a store's time limit for a
/// call, and a quarter. Until then those who wait are in no queue, and are told that they wait when it is noticed.
const NOTICED: Duration = Duration::from_secs(4);

/// A time during which waiters may have lost their places.
type Span = (Instant, Instant);

/// What about one attempt is not judged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exemption {
    /// Its place in a queue (L3).
    pub(super) place: bool,
    /// Its belief from that moment on (V1, V2).
    pub(super) belief: Option<Instant>,
    /// Its token (V3).
    pub(super) token: bool,
}

/// The exemptions of a run, by the numbers of their attempts.
#[derive(Debug, Default)]
pub(super) struct Exemptions(HashMap<u64, Exemption>);

impl Exemptions {
    /// How many are of that kind.
    pub(super) fn count(&self, is: impl Fn(&Exemption) -> bool) -> usize {
        self.0.values().filter(|exemption| is(exemption)).count()
    }

    /// Exempts the places of waiters that were disturbed while they waited: whose process was paused, killed or stood
    /// still, whose link or store suffered anything or answered no call, up to a lease after. Their claims may have ended in
    /// the store, and they queue again at the tail.
    pub(super) fn places(
        &mut self,
        attempts: &HashMap<u64, Attempt>,
        events: &[Event],
        notes: &[Note],
        worked: &[Worked],
        deeds: &[Deed],
    ) {
        let mut spans = disturbances(notes, worked, deeds);
        for still in standstills(events) {
            spans.values_mut().for_each(|spans| spans.push(still));
        }
        for (number, attempt) in attempts {
            let spans = spans.get(&process_of(*number)).into_iter().flatten();
            let queued = attempt.queued.unwrap_or(Instant::NEVER);
            let mut disturbing = spans.filter(|span| span.0 <= attempt.waited && queued <= span.1);
            self.0.entry(*number).or_default().place =
                attempt.queued.is_some() && disturbing.next().is_some();
        }
    }

    /// Exempts, from each moment at which something happened that the store names among its hazards, every belief there is.
    ///
    /// - *The data is lost* ([`Hazard::DataLoss`]), or what was not on the disk ([`Hazard::Restart`]): the store knows
    ///   nothing of those who hold, and grants what they have to others. They learn it at their next renewal; nothing more
    ///   is promised. Those who were granted a lock before and told of it after are among them.
    /// - *The clock is set forward* ([`Hazard::ClockSet`]): leases end that much early in the store, and their holders
    ///   cannot know.
    ///
    /// From then on V1 and V2 are silent about those holders alone: a grant after that moment is judged in full, also
    /// against others of that kind. V3 and V4 are never silent, but for this: a claim that was confirmed before the moment
    /// may be passed on in its client's memory for 10 ms, with a token that is older than that of a grant by the store
    /// meanwhile; the token of a claim that was passed on like that is not judged.
    pub(super) fn beliefs(&mut self, attempts: &HashMap<u64, Attempt>, deeds: &[Deed], hazards: &[Hazard]) {
        let named = |deed: &&Deed| deed.hazard.is_some_and(|hazard| hazards.contains(&hazard));
        for deed in deeds.iter().filter(named) {
            for (&number, attempt) in attempts {
                let Some(granted) = attempt.granted else { continue };
                let before = granted <= deed.from;
                // The store counts the whole lease, and belief less: so this is a little earlier than the truth.
                let confirmed = attempt.until - attempt.lease;
                if attempt.ended > deed.from && (before || confirmed <= deed.to) {
                    let exemption = self.0.entry(number).or_default();
                    let from = deed.from.max(granted);
                    exemption.belief = Some(exemption.belief.map_or(from, |known| known.min(from)));
                    exemption.token |= !before;
                }
            }
        }
    }

    /// Removes from the history what these exempt.
    pub(super) fn apply(&self, events: &mut Vec<Event>) {
        events.retain_mut(|event| {
            let exemption = self.0.get(&event.attempt).copied().unwrap_or_default();
            match &mut event.kind {
                EventKind::Queued => !exemption.place,
                EventKind::Sampled { held: true, .. } => exemption.belief.is_none_or(|end| event.at < end),
                EventKind::Acquired { token, .. } if exemption.token => {
                    *token = None;
                    true
                }
                _ => true,
            }
        });
        let ends = self.0.iter().filter_map(|(&attempt, exemption)| {
            let (at, what) = (exemption.belief?, EventKind::Lost);
            Some(Event {
                at,
                attempt,
                kind: what,
            })
        });
        events.extend(ends);
    }
}

/// When the store answered no call for long, and a lease after that.
fn standstills(events: &[Event]) -> Vec<Span> {
    let answers = |event: &&Event| {
        matches!(
            event.kind,
            EventKind::Queued | EventKind::Acquired { .. } | EventKind::Released
        )
    };
    let mut answered: Vec<Instant> = events.iter().filter(answers).map(|event| event.at).collect();
    answered.sort();
    let gaps = answered.windows(2).filter(|gap| gap[1] - gap[0] > STANDSTILL);
    gaps.map(|gap| (gap[0], gap[1] + LONGEST_LEASE)).collect()
}

/// For each process, when it was disturbed.
fn disturbances(notes: &[Note], worked: &[Worked], deeds: &[Deed]) -> HashMap<u64, Vec<Span>> {
    let mut spans: HashMap<u64, Vec<Span>> = HashMap::new();
    for worked in worked {
        let whom = [Whom::Everybody, Whom::Seat(worked.seat)];
        let own = deeds.iter().filter(|deed| whom.contains(&deed.whom));
        let own = own.map(|deed| (deed.from, deed.to + unnoticed(deed) + LONGEST_LEASE));
        let death = worked.died.map(|died| (died, Instant::NEVER));
        spans.insert(worked.number, own.chain(death).collect());
    }
    for note in notes {
        if let Noted::Stalled { since } = note.what {
            let own = spans.entry(process_of(note.attempt)).or_default();
            own.push((since, note.at + AFTERMATH));
        }
    }
    spans
}

/// For how long a deed is felt without being seen: bytes that were swallowed are missed only when no answer comes.
fn unnoticed(deed: &Deed) -> Duration {
    match deed.what.starts_with("HalfOpen") || deed.what.starts_with("Swallow") {
        true => NOTICED,
        false => Duration::ZERO,
    }
}
