//! Whose place in a queue can be judged: a waiter that was disturbed may have lost it, and nobody promised otherwise.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure::Instant;
use tenure_testkit::{Event, What};

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

/// How many waits in queues were judged, and how many were not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) judged: usize,
    pub(crate) left_out: usize,
}

/// Forgets the places of those who were disturbed while they waited: whose process was paused, killed or stood still, whose
/// link or store suffered anything or answered nobody, up to a lease after. Their claims may have ended in the store, and
/// they queue again at the tail.
pub(crate) fn forget_the_disturbed(
    events: &mut Vec<Event>,
    notes: &[Note],
    worked: &[Worked],
    deeds: &[Deed],
) -> Judged {
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
    let disturbed: HashSet<u64> = waits
        .iter()
        .filter(|(attempt, wait)| is_disturbed(attempt, wait))
        .map(|(attempt, _)| *attempt)
        .collect();
    events.retain(|event| event.what != What::Queued || !disturbed.contains(&event.attempt));
    Judged {
        judged: waits.len() - disturbed.len(),
        left_out: disturbed.len(),
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * SECOND)
    }

    /// Process 1 on seat 0 queues from 100 s to 110 s; the store answers somebody each second.
    fn judged(deeds: &[Deed], notes: &[Note]) -> Judged {
        judged_beside(&(95..115).collect::<Vec<_>>(), deeds, notes)
    }

    /// The same, where the store answers somebody else at those seconds.
    fn judged_beside(answered: &[u64], deeds: &[Deed], notes: &[Note]) -> Judged {
        let attempt = attempts::first(1, 0);
        let event = |seconds, what| Event {
            at: at(seconds),
            attempt,
            what,
        };
        let acquired = What::Acquired {
            token: None,
            until: at(120),
        };
        let mut events = vec![event(100, What::Queued), event(110, acquired)];
        events.extend(answered.iter().map(|seconds| Event {
            at: at(*seconds),
            attempt: attempts::first(2, 0),
            what: What::Released,
        }));
        let worked = Worked {
            number: 1,
            seat: 0,
            log: PathBuf::new(),
            died: None,
        };
        forget_the_disturbed(&mut events, notes, &[worked], deeds)
    }

    fn deed(whom: Whom, from: u64, to: u64) -> Deed {
        Deed {
            from: at(from),
            to: at(to),
            whom,
            hazard: None,
            what: String::new(),
        }
    }

    #[test]
    fn whoever_was_disturbed_while_it_waited_is_left_out_and_nobody_else() {
        let clear = Judged {
            judged: 1,
            left_out: 0,
        };
        let left_out = Judged {
            judged: 0,
            left_out: 1,
        };
        assert_eq!(judged(&[], &[]), clear);
        assert_eq!(judged(&[deed(Whom::Seat(0), 105, 106)], &[]), left_out);
        assert_eq!(
            judged(&[deed(Whom::Seat(1), 105, 106)], &[]),
            clear,
            "another's trouble"
        );
        assert_eq!(
            judged(&[deed(Whom::Everybody, 105, 106)], &[]),
            left_out,
            "the store's is everybody's"
        );
        assert_eq!(judged(&[deed(Whom::Everybody, 90, 97)], &[]), clear, "long over");
        assert_eq!(
            judged(&[deed(Whom::Everybody, 90, 99)], &[]),
            left_out,
            "less than a lease ago"
        );
        let swallowed = Deed {
            what: "HalfOpen".to_owned(),
            ..deed(Whom::Seat(0), 90, 95)
        };
        assert_eq!(judged(&[swallowed], &[]), left_out, "it was noticed late");
        let all_but = |from: u64, to: u64| {
            (95..115)
                .filter(|second| !(from..to).contains(second))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            judged_beside(&all_but(104, 106), &[], &[]),
            left_out,
            "it answered nobody"
        );
        assert_eq!(
            judged_beside(&all_but(112, 114), &[], &[]),
            clear,
            "it did so later"
        );
        let stalled = |attempt| Note {
            at: at(106),
            attempt,
            what: Noted::Stalled { since: at(105) },
        };
        assert_eq!(judged(&[], &[stalled(attempts::first(1, 2))]), left_out);
        assert_eq!(judged(&[], &[stalled(attempts::first(2, 2))]), clear);
    }
}
