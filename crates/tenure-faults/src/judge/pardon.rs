//! What a store does not promise is not held against it, and nothing more: which beliefs are pardoned, and from when.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_testkit::{Event, What};

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

/// Ends, at each moment at which something happened that the store names among its hazards, every belief there is, and
/// forgets what those holders said of theirs afterwards; answers how many beliefs that were.
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
pub(crate) fn pardon(events: &mut Vec<Event>, notes: &[Note], deeds: &[Deed], hazards: &[Hazard]) -> usize {
    let granted = granted(events, notes);
    let mut ends: HashMap<u64, Instant> = HashMap::new();
    let mut unjudged: HashSet<u64> = HashSet::new();
    let named = |deed: &&Deed| deed.hazard.is_some_and(|hazard| hazards.contains(&hazard));
    for deed in deeds.iter().filter(named) {
        for (attempt, granted) in &granted {
            let before = granted.at <= deed.from;
            if granted.ended > deed.from && (before || granted.confirmed <= deed.to) {
                let end = ends.entry(*attempt).or_insert(Instant::NEVER);
                *end = deed.from.max(granted.at).min(*end);
                if !before {
                    unjudged.insert(*attempt);
                }
            }
        }
    }
    events.retain(|event| match event.what {
        What::Sampled { held: true, .. } => ends.get(&event.attempt).is_none_or(|end| event.at < *end),
        _ => true,
    });
    for event in events.iter_mut() {
        if let What::Acquired { token, .. } = &mut event.what
            && unjudged.contains(&event.attempt)
        {
            *token = None;
        }
    }
    events.extend(ends.iter().map(|(&attempt, &at)| Event {
        at,
        attempt,
        what: What::Lost,
    }));
    ends.len()
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

#[cfg(test)]
mod tests {
    use tenure_testkit::{Rule, check};

    use crate::control::Whom;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn lost_at(nanos: u64) -> Deed {
        Deed {
            from: at(nanos),
            to: at(nanos + 100),
            whom: Whom::Everybody,
            hazard: Some(Hazard::DataLoss),
            what: String::new(),
        }
    }

    /// One holds from 1100, another from 5000 although the first has not ended, and a third from 6000.
    fn history() -> (Vec<Event>, Vec<Note>) {
        let text = "1000 1 invoked owner=1 mode=exclusive key=k
            1100 1 acquired token=1 until=8000
            4900 2 invoked owner=2 mode=exclusive key=k
            5000 2 acquired token=2 until=12000
            5200 1 sampled since=5150 held=true
            5900 3 invoked owner=3 mode=exclusive key=k
            6000 3 acquired token=3 until=13000";
        let events = text.lines().map(|line| line.trim().parse().unwrap()).collect();
        let lease = Duration::from_nanos(7000);
        let note = |attempt| Note {
            at: at(6000),
            attempt,
            what: Noted::Deadline {
                until: at(8000),
                lease,
            },
        };
        (events, vec![note(1), note(2), note(3)])
    }

    fn rules(deeds: &[Deed], hazards: &[Hazard]) -> Vec<Rule> {
        let (mut events, notes) = history();
        pardon(&mut events, &notes, deeds, hazards);
        match check(events) {
            Ok(_) => Vec::new(),
            Err(violations) => violations.iter().map(|violation| violation.rule).collect(),
        }
    }

    #[test]
    fn what_came_before_the_loss_is_pardoned_and_what_came_after_is_not() {
        assert_eq!(rules(&[], &[Hazard::DataLoss]), [Rule::V1, Rule::V2, Rule::V1]);
        assert_eq!(
            rules(&[lost_at(4000)], &[Hazard::DataLoss]),
            [Rule::V1],
            "the third on the second"
        );
        assert_eq!(rules(&[lost_at(4000), lost_at(5500)], &[Hazard::DataLoss]), []);
        assert_eq!(
            rules(&[lost_at(7000)], &[Hazard::DataLoss]).len(),
            3,
            "too late an excuse"
        );
    }

    #[test]
    fn a_store_that_does_not_name_the_hazard_is_not_pardoned() {
        assert_eq!(rules(&[lost_at(4000)], &[Hazard::ClockSet]).len(), 3);
    }
}
