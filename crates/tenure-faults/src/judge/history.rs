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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use tenure_testkit::{Rule, check};

    use super::*;

    fn events(text: &str) -> Vec<Event> {
        text.lines().map(|line| line.trim().parse().unwrap()).collect()
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// The first of two processes holds from 1100, the second from 5000.
    fn two_holders() -> (u64, Vec<Event>) {
        let (one, other) = (attempts::first(1, 0), attempts::first(2, 0));
        let history = format!(
            "1000 {one} invoked owner=1 mode=exclusive key=k
             1100 {one} acquired token=1 until=3000
             4900 {other} invoked owner=2 mode=exclusive key=k
             5000 {other} acquired token=2 until=9000"
        );
        (one, events(&history))
    }

    #[test]
    fn a_renewal_lengthens_a_belief() {
        let (one, mut history) = two_holders();
        let deadline = |nanos, until| Note {
            at: at(nanos),
            attempt: one,
            what: Noted::Deadline {
                until: at(until),
                lease: Duration::from_nanos(2000),
            },
        };
        extend(&mut history, &[deadline(1100, 3000), deadline(2000, 4000)]);
        assert!(check(history.clone()).is_ok());
        // The last is what it reads once it is lost.
        extend(&mut history, &[deadline(3000, 5001), deadline(6000, 0)]);
        assert_eq!(check(history).unwrap_err()[0].rule, Rule::V1);
    }

    #[test]
    fn the_dead_believe_nothing() {
        let (one, mut history) = two_holders();
        let late = Note {
            at: at(2000),
            attempt: one,
            what: Noted::Deadline {
                until: at(8000),
                lease: Duration::from_nanos(8000),
            },
        };
        extend(&mut history, &[late]);
        let worked = |number, died| Worked {
            number,
            seat: 0,
            log: PathBuf::new(),
            died,
        };
        let mut too_late = history.clone();
        bury(&mut too_late, &[worked(1, Some(at(5001))), worked(2, None)]);
        assert_eq!(check(too_late).unwrap_err()[0].rule, Rule::V1);
        bury(&mut history, &[worked(1, Some(at(4999))), worked(2, None)]);
        assert!(check(history).is_ok());
    }
}
