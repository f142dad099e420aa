//! What is judged and what is exempt, shown by the rules that a history breaks.

use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_testkit::{Event, Rule};

use super::{Law, judge};
use crate::attempts;
use crate::control::{Deed, Whom, Worked};
use crate::line::{Note, Noted};

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

/// A history whose lines begin with seconds and the number of a process, which makes one attempt; `s` stands behind seconds
/// elsewhere.
fn history(text: &str) -> Vec<Event> {
    let nanos = |word: &str| {
        let seconds = word
            .strip_suffix('s')
            .and_then(|word| word.rsplit('=').next()?.parse().ok());
        seconds.map_or(word.to_owned(), |seconds| {
            let name = word
                .split_once('=')
                .map_or(String::new(), |(name, _)| format!("{name}="));
            format!("{name}{}", at(seconds).as_nanos())
        })
    };
    let event = |line: &str| {
        let mut words: Vec<String> = line.split_whitespace().map(nanos).collect();
        words[1] = attempts::first(words[1].parse().unwrap(), 0).to_string();
        words.join(" ").parse().unwrap()
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(event)
        .collect()
}

/// The rules that are broken, where the store's profile names a loss of data, and processes 1 to 3 work on seats 0 to 2.
fn broken(events: Vec<Event>, notes: &[Note], died: Option<Instant>, deeds: &[Deed]) -> Vec<Rule> {
    let worked = [1, 2, 3].map(|number| Worked {
        number,
        seat: number as usize - 1,
        died: died.filter(|_| number == 1),
    });
    let findings = judge(events, notes, &worked, deeds, &[Hazard::DataLoss]).findings;
    let rule = |finding: super::Finding| match finding.law {
        Law::History(rule) => rule,
        law => panic!("{law:?} is not judged here"),
    };
    findings.into_iter().map(rule).collect()
}

fn note(process: u64, seconds: u64, what: Noted) -> Note {
    Note {
        at: at(seconds),
        attempt: attempts::first(process, 0),
        what,
    }
}

fn deadline(process: u64, seconds: u64, until: u64) -> Note {
    let (until, lease) = (at(until), Duration::from_secs(7));
    note(process, seconds, Noted::Deadline { until, lease })
}

fn deed(whom: Whom, from: u64, to: u64, hazard: Option<Hazard>, what: &str) -> Deed {
    Deed {
        from: at(from),
        to: at(to),
        whom,
        hazard,
        what: what.to_owned(),
    }
}

const TWO_HOLDERS: &str = "
    100s 1 invoked owner=1 mode=exclusive key=k
    101s 1 acquired token=1 until=103s
    104s 2 invoked owner=2 mode=exclusive key=k
    105s 2 acquired token=2 until=109s";

#[test]
fn a_renewal_lengthens_a_belief() {
    let broken = |notes: &[Note]| broken(history(TWO_HOLDERS), notes, None, &[]);
    assert_eq!(broken(&[]), []);
    assert_eq!(broken(&[deadline(1, 101, 103), deadline(1, 102, 104)]), []);
    // The last is what it reads once it is lost.
    assert_eq!(broken(&[deadline(1, 103, 106), deadline(1, 106, 0)]), [Rule::V1]);
}

#[test]
fn the_dead_believe_nothing() {
    let died = |seconds| {
        broken(
            history(TWO_HOLDERS),
            &[deadline(1, 102, 108)],
            Some(at(seconds)),
            &[],
        )
    };
    assert_eq!(died(106), [Rule::V1]);
    assert_eq!(died(104), []);
}

#[test]
fn beliefs_before_a_loss_of_data_are_exempt_and_later_ones_are_not() {
    let history = || {
        history(
            "100s 1 invoked owner=1 mode=exclusive key=k
             101s 1 acquired token=1 until=108s
             104s 2 invoked owner=2 mode=exclusive key=k
             105s 2 acquired token=2 until=112s
             107s 1 sampled since=106s held=true
             108s 3 invoked owner=3 mode=exclusive key=k
             109s 3 acquired token=3 until=113s",
        )
    };
    let notes = [1, 2, 3].map(|process| deadline(process, 109, 108));
    let after = |hazard, moments: &[u64]| {
        let deeds: Vec<_> = moments
            .iter()
            .map(|&at| deed(Whom::Everybody, at, at, Some(hazard), ""))
            .collect();
        broken(history(), &notes, None, &deeds)
    };
    let all = [Rule::V1, Rule::V2, Rule::V1];
    assert_eq!(after(Hazard::DataLoss, &[]), all);
    assert_eq!(
        after(Hazard::DataLoss, &[103]),
        [Rule::V1],
        "the third on the second"
    );
    assert_eq!(after(Hazard::DataLoss, &[103, 107]), []);
    assert_eq!(after(Hazard::DataLoss, &[110]), all, "too late an excuse");
    assert_eq!(
        after(Hazard::ClockSet, &[103]),
        all,
        "the profile does not name it"
    );
}

/// Process 1 queues from 100 s to 110 s, and process 2 comes later and is served before it. The store answers process 3 in
/// each second but those.
fn overtaken(silent: std::ops::Range<u64>) -> Vec<Event> {
    let mut text = "
        90s 3 invoked owner=3 mode=exclusive key=other
        99s 1 invoked owner=1 mode=exclusive key=k
        100s 1 queued
        107s 2 invoked owner=2 mode=exclusive key=k
        108s 2 acquired token=1 until=112s
        109s 2 release
        110s 1 acquired token=2 until=120s"
        .to_owned();
    for second in (95..115).filter(|second| !silent.contains(second)) {
        text += &format!("\n{second}s 3 released");
    }
    history(&text)
}

#[test]
fn a_disturbed_waiter_may_be_overtaken_and_nobody_else() {
    let place = |deeds: &[Deed], notes: &[Note]| broken(overtaken(0..0), notes, None, deeds);
    let deed = |whom, from, to, what| [deed(whom, from, to, None, what)];
    assert_eq!(place(&[], &[]), [Rule::L3]);
    assert_eq!(place(&deed(Whom::Seat(0), 105, 106, ""), &[]), []);
    assert_eq!(
        place(&deed(Whom::Seat(1), 105, 106, ""), &[]),
        [Rule::L3],
        "another's trouble"
    );
    assert_eq!(
        place(&deed(Whom::Everybody, 105, 106, ""), &[]),
        [],
        "the store's is everybody's"
    );
    assert_eq!(
        place(&deed(Whom::Everybody, 90, 97, ""), &[]),
        [Rule::L3],
        "long over"
    );
    assert_eq!(
        place(&deed(Whom::Everybody, 90, 99, ""), &[]),
        [],
        "less than a lease ago"
    );
    assert_eq!(
        place(&deed(Whom::Seat(0), 90, 95, "HalfOpen"), &[]),
        [],
        "it was noticed late"
    );
    let stalled = |process| note(process, 106, Noted::Stalled { since: at(105) });
    assert_eq!(place(&[], &[stalled(1)]), []);
    assert_eq!(place(&[], &[stalled(2)]), [Rule::L3]);
    assert_eq!(
        broken(overtaken(103..106), &[], None, &[]),
        [],
        "the store answered nobody"
    );
    assert_eq!(
        broken(overtaken(112..114), &[], None, &[]),
        [Rule::L3],
        "it did so later"
    );
}
