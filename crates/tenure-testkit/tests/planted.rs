//! Histories that violate exactly one rule each: the checker reports that rule, and nothing for the corrected history.
//! `checker.rs` tests the checker on random histories.

use tenure_testkit::{Event, Rule, check};

/// Histories, each under a title that names a rule. Each is checked twice: with its line `wrong` and without `right`
/// it violates that rule, with its line `right` and without `wrong` it violates none.
const PLANTED: &str = "\
V1: holding periods that overlap by one nanosecond
  0 1 invoked owner=1 mode=exclusive key=k
  10 1 acquired token=- until=1000
  20 2 invoked owner=2 mode=exclusive key=k
  101 2 acquired token=- until=1000
  right: 101 1 release
  wrong: 102 1 release

V1: a writer that is granted after a downgrade
  0 1 invoked owner=1 mode=write key=k
  10 1 acquired token=- until=1000
  20 1 downgrade
  30 2 invoked owner=2 mode=read key=k
  40 2 acquired token=- until=1000
  50 3 invoked owner=3 mode=write key=k
  60 2 release
  right: 70 1 release
  wrong: 70 3 acquired token=- until=1000

V3: a token that equals the one before
  0 1 invoked owner=1 mode=exclusive key=k
  10 1 acquired token=7 until=1000
  20 1 release
  30 2 invoked owner=2 mode=exclusive key=k
  right: 40 2 acquired token=8 until=900
  wrong: 40 2 acquired token=7 until=900

V2: a guard that says it is held while another attempt holds the key
  0 1 invoked owner=1 mode=exclusive key=k
  10 1 acquired token=- until=1000
  50 1 release
  60 2 invoked owner=2 mode=exclusive key=k
  70 2 acquired token=- until=1000
  right: 80 1 sampled since=65 held=true
  wrong: 80 1 sampled since=71 held=true

V4: a resource that accepts an older token
  0 1 invoked owner=1 mode=exclusive key=k
  10 1 acquired token=7 until=100
  200 2 invoked owner=2 mode=exclusive key=k
  210 2 acquired token=8 until=900
  220 2 accepted token=8
  right: 215 1 accepted token=7
  wrong: 221 1 accepted token=7

L3: a grant that overtakes the queue
  0 1 invoked owner=1 mode=exclusive key=k
  5 1 acquired token=- until=1000
  10 2 invoked owner=2 mode=exclusive key=k
  15 2 queued
  20 3 invoked owner=3 mode=exclusive key=k
  25 3 queued
  30 1 release
  40 3 acquired token=- until=1000
  right: 35 2 queued
  wrong: 50 2 failed

L4: a waiter that is left behind
  0 1 invoked owner=1 mode=exclusive key=k
  5 1 acquired token=- until=1000
  10 2 invoked owner=2 mode=exclusive key=k
  15 2 queued
  20 2 failed
  30 1 release
  40 1 released
  right: 50 1 seen holders=0 waiters=0
  wrong: 50 1 seen holders=0 waiters=1";

/// Rules that the checker finds violated.
fn broken<'a>(history: impl IntoIterator<Item = &'a str>) -> Vec<Rule> {
    let events = history.into_iter().map(|line| line.parse::<Event>().unwrap());
    match check(events) {
        Ok(_) => Vec::new(),
        Err(violations) => violations.iter().map(|violation| violation.rule).collect(),
    }
}

#[test]
fn each_planted_fault_breaks_only_its_rule() {
    for planted in PLANTED.split("\n\n") {
        let mut lines: Vec<&str> = planted.lines().map(str::trim_start).collect();
        let wrong = lines.pop().and_then(|line| line.strip_prefix("wrong: ")).unwrap();
        let right = lines.pop().and_then(|line| line.strip_prefix("right: ")).unwrap();
        let (rule, fault) = lines.remove(0).split_once(": ").unwrap();
        let with = |line| broken(lines.iter().copied().chain([line]));
        assert_eq!(with(right), [], "{fault}: with {right:?}");
        let rules: Vec<String> = with(wrong).iter().map(|rule| format!("{rule:?}")).collect();
        assert_eq!(rules, [rule], "{fault}: with {wrong:?}");
    }
}

#[test]
fn a_contradictory_history_is_reported() {
    let granted_twice = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "5 1 acquired token=- until=1000",
        "6 1 acquired token=- until=1000",
    ];
    assert_eq!(broken(granted_twice), [Rule::History]);
    let begun_twice = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "5 1 invoked owner=1 mode=exclusive key=other",
        "6 1 released",
    ];
    assert_eq!(broken(begun_twice), [Rule::History]);
    assert_eq!(broken(["5 1 released"]), [Rule::History]);
    let downgraded_reader = [
        "0 1 invoked owner=1 mode=read key=k",
        "5 1 acquired token=- until=1000",
        "6 1 downgrade",
    ];
    assert_eq!(broken(downgraded_reader), [Rule::History]);
}

#[test]
fn a_violation_prints_its_events() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "10 1 acquired token=- until=1000",
        "20 2 invoked owner=2 mode=exclusive key=k",
        "40 2 acquired token=- until=1000",
    ];
    let events = lines.map(|line| line.parse::<Event>().unwrap());
    let violations = check(events).unwrap_err();
    let text = violations[0].to_string();
    assert!(text.starts_with("V1: "), "{text}");
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
}
