//! Tests which rules a history violates, and which violations `judge` excuses because of a fault.

use std::time::Duration;

use tenure::Instant;
use tenure::backend::Hazard;
use tenure_testkit::{Event, Rule};

use super::{Law, judge};
use crate::control::WorkerRun;
use crate::fault::{InjectedFault, Scope};
use crate::log::{Observation, ObservationKind, first_attempt};

const LONGEST_LEASE: Duration = Duration::from_secs(2);

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

/// Parses a history. Each line has a time, a process number and an event. Each process makes one attempt. Times are in
/// nanoseconds, or in seconds as in `12s`.
fn history(text: &str) -> Vec<Event> {
    let nanos = |word: &str| match word.strip_suffix('s') {
        Some(seconds) if seconds.ends_with(|last: char| last.is_ascii_digit()) => {
            format!("{seconds}000000000")
        }
        _ => word.to_owned(),
    };
    let event = |line: &str| {
        let mut words: Vec<String> = line.split_whitespace().map(nanos).collect();
        words[1] = first_attempt(words[1].parse().unwrap(), 0).to_string();
        words.join(" ").parse().unwrap()
    };
    text.trim().lines().map(event).collect()
}

/// Rules that `judge` finds violated. The profile lists data loss as a hazard. Processes 1 to 3 have the seats 0 to 2;
/// process 1 died at `died`.
fn broken(
    events: Vec<Event>,
    notes: &[Observation],
    died: Option<Instant>,
    fault_log: &[InjectedFault],
) -> Vec<Rule> {
    let runs = [1, 2, 3].map(|number| WorkerRun {
        number,
        seat: number as usize - 1,
        died: died.filter(|_| number == 1),
    });
    let findings = judge(
        events,
        notes,
        &runs,
        fault_log,
        &[Hazard::DataLoss],
        LONGEST_LEASE,
    )
    .findings;
    let rule = |finding: super::Finding| match finding.law {
        Law::History(rule) => rule,
        law => panic!("{law:?} is not checked here"),
    };
    findings.into_iter().map(rule).collect()
}

fn note(process: u64, seconds: u64, what: ObservationKind) -> Observation {
    Observation {
        at: at(seconds),
        attempt: first_attempt(process, 0),
        what,
    }
}

fn deadline(process: u64, seconds: u64, until: u64) -> Observation {
    let (until, lease) = (at(until), Duration::from_secs(7));
    note(process, seconds, ObservationKind::Deadline { until, lease })
}

fn fault(scope: Scope, from: u64, to: u64, hazard: Option<Hazard>, what: &str) -> InjectedFault {
    InjectedFault {
        from: at(from),
        to: at(to),
        scope,
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
fn a_renewal_extends_a_holding_period() {
    let broken = |notes: &[Observation]| broken(history(TWO_HOLDERS), notes, None, &[]);
    assert_eq!(broken(&[]), []);
    assert_eq!(broken(&[deadline(1, 101, 103), deadline(1, 102, 104)]), []);
    // A guard reports the deadline 0 after a loss. The deadline that it reported before, 106 s, still counts.
    assert_eq!(broken(&[deadline(1, 103, 106), deadline(1, 106, 0)]), [Rule::V1]);
}

#[test]
fn death_ends_a_holding_period() {
    let notes = [deadline(1, 102, 108)];
    let died = |seconds| broken(history(TWO_HOLDERS), &notes, Some(at(seconds)), &[]);
    assert_eq!(died(106), [Rule::V1]);
    assert_eq!(died(104), []);
}

#[test]
fn only_holders_before_a_data_loss_are_exempt() {
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
    let all = &[Rule::V1, Rule::V2, Rule::V1][..];
    for (case, hazard, moments, expected) in [
        ("nothing was lost", Hazard::DataLoss, &[][..], all),
        ("only the third conflicts", Hazard::DataLoss, &[103], &[Rule::V1]),
        ("the second is exempt too", Hazard::DataLoss, &[103, 107], &[]),
        ("the loss was after the overlaps", Hazard::DataLoss, &[110], all),
        ("the profile does not name it", Hazard::ClockSet, &[103], all),
    ] {
        let fault = |&at| fault(Scope::AllWaiters, at, at, Some(hazard), "");
        let fault_log: Vec<_> = moments.iter().map(fault).collect();
        assert_eq!(broken(history(), &notes, None, &fault_log), expected, "{case}");
    }
}

/// Process 1 queues from 100 s to 110 s. Process 2 begins at 107 s and overtakes process 1 at 108 s. The store replies
/// to process 3 once per second, except in the seconds `silent`.
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
fn only_a_disturbed_waiter_may_be_overtaken() {
    let (own, other, all) = (Scope::Seat(0), Scope::Seat(1), Scope::AllWaiters);
    for (case, scope, from, to, what, is_broken) in [
        ("a fault of its own process", own, 105, 106, "", false),
        ("a fault of another process", other, 105, 106, "", true),
        (
            "a fault of the store disturbs all waiters",
            all,
            105,
            106,
            "",
            false,
        ),
        ("the fault ended long before", all, 90, 97, "", true),
        ("less than a lease ago", all, 90, 99, "", false),
        ("it is detected late", own, 90, 95, "HalfOpen", false),
    ] {
        let fault_log = [fault(scope, from, to, None, what)];
        let expected = &[Rule::L3][usize::from(!is_broken)..];
        assert_eq!(broken(overtaken(0..0), &[], None, &fault_log), expected, "{case}");
    }
    let stalled = |process| [note(process, 106, ObservationKind::Stalled { since: at(105) })];
    for (case, silent, notes, is_broken) in [
        ("nothing happened", 0..0, &[][..], true),
        ("its process stalled", 0..0, &stalled(1), false),
        ("another process stalled", 0..0, &stalled(2), true),
        ("the store did not reply", 103..106, &[], false),
        ("the store did not reply afterwards", 112..114, &[], true),
    ] {
        let expected = &[Rule::L3][usize::from(!is_broken)..];
        assert_eq!(broken(overtaken(silent), notes, None, &[]), expected, "{case}");
    }
}
