//! Faults planted into histories, one by one: the checker finds each, and nothing in the history without it.
//! Random histories are in `checker.rs`.

use tenure_testkit::{Event, Rule, check};

/// The rules that the history of these lines breaks.
fn broken(lines: &[&str]) -> Vec<Rule> {
    let events: Vec<Event> = lines.iter().map(|line| line.parse().unwrap()).collect();
    match check(events) {
        Ok(_) => Vec::new(),
        Err(violations) => violations.iter().map(|violation| violation.rule).collect(),
    }
}

/// The history is clean with `right` in the place of the fault, and breaks `rule` alone with `wrong`.
#[track_caller]
fn only_the_fault_is_found(rule: Rule, lines: &[&str], right: &str, wrong: &str) {
    let with = |line| [lines, &[line]].concat();
    assert_eq!(broken(&with(right)), [], "with {right:?}");
    assert_eq!(broken(&with(wrong)), [rule], "with {wrong:?}");
}

#[test]
fn beliefs_that_overlap_by_one_nanosecond() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "10 1 acquired token=- until=1000",
        "20 2 invoked owner=2 mode=exclusive key=k",
        "101 2 acquired token=- until=1000",
    ];
    only_the_fault_is_found(Rule::V1, &lines, "101 1 release", "102 1 release");
}

#[test]
fn a_reader_beside_a_writer() {
    let lines = [
        "0 1 invoked owner=1 mode=read key=k",
        "5 1 acquired token=- until=1000",
        "10 2 invoked owner=2 mode=read key=k",
        "15 2 acquired token=- until=1000",
        "20 1 release",
        "30 3 invoked owner=3 mode=write key=k",
        "50 3 acquired token=- until=1000",
    ];
    only_the_fault_is_found(Rule::V1, &lines, "40 2 release", "60 2 release");
}

#[test]
fn one_permit_too_many() {
    let lines = [
        "0 1 invoked owner=1 mode=permits:2/5 key=k",
        "0 2 invoked owner=2 mode=permits:2/5 key=k",
        "5 1 acquired token=- until=1000",
        "5 2 acquired token=- until=1000",
        "9 3 acquired token=- until=1000",
    ];
    let (right, wrong) = (
        "0 3 invoked owner=3 mode=permits:1/5 key=k",
        "0 3 invoked owner=3 mode=permits:2/5 key=k",
    );
    only_the_fault_is_found(Rule::V1, &lines, right, wrong);
}

#[test]
fn a_token_that_equals_the_one_before() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "10 1 acquired token=7 until=1000",
        "20 1 release",
        "30 2 invoked owner=2 mode=exclusive key=k",
    ];
    let (right, wrong) = (
        "40 2 acquired token=8 until=900",
        "40 2 acquired token=7 until=900",
    );
    only_the_fault_is_found(Rule::V3, &lines, right, wrong);
}

#[test]
fn a_token_that_goes_back_across_an_expiry() {
    let lines = [
        "0 1 invoked owner=1 mode=write key=k",
        "10 1 acquired token=7 until=100",
        "200 2 invoked owner=2 mode=read key=k",
    ];
    let (right, wrong) = (
        "210 2 acquired token=8 until=900",
        "210 2 acquired token=1 until=900",
    );
    only_the_fault_is_found(Rule::V3, &lines, right, wrong);
}

#[test]
fn a_token_given_out_twice_among_attempts_that_were_under_way_together() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "0 2 invoked owner=2 mode=exclusive key=k",
        "10 1 acquired token=7 until=1000",
        "20 1 release",
    ];
    let (right, wrong) = (
        "30 2 acquired token=6 until=900",
        "30 2 acquired token=7 until=900",
    );
    only_the_fault_is_found(Rule::V3, &lines, right, wrong);
}

#[test]
fn a_holder_that_is_told_it_holds_inside_another_belief() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "10 1 acquired token=- until=1000",
        "50 1 release",
        "60 2 invoked owner=2 mode=exclusive key=k",
        "70 2 acquired token=- until=1000",
    ];
    let (right, wrong) = (
        "80 1 sampled since=65 held=true",
        "80 1 sampled since=71 held=true",
    );
    only_the_fault_is_found(Rule::V2, &lines, right, wrong);
}

#[test]
fn a_belief_that_goes_on_beyond_its_deadline() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "10 1 acquired token=- until=100",
    ];
    let (right, wrong) = (
        "110 1 sampled since=99 held=true",
        "110 1 sampled since=100 held=true",
    );
    only_the_fault_is_found(Rule::V2, &lines, right, wrong);
}

#[test]
fn a_loss_that_is_taken_back() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "10 1 acquired token=- until=100",
        "20 1 lost",
    ];
    let (right, wrong) = (
        "30 1 sampled since=21 held=false",
        "30 1 sampled since=21 held=true",
    );
    only_the_fault_is_found(Rule::V2, &lines, right, wrong);
}

#[test]
fn a_resource_that_accepts_an_older_token() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "10 1 acquired token=7 until=100",
        "200 2 invoked owner=2 mode=exclusive key=k",
        "210 2 acquired token=8 until=900",
        "220 2 accepted token=8",
    ];
    only_the_fault_is_found(
        Rule::V4,
        &lines,
        "215 1 accepted token=7",
        "221 1 accepted token=7",
    );
}

#[test]
fn a_release_by_somebody_else_that_freed_the_key() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "10 1 acquired token=- until=1000",
        "20 2 invoked owner=2 mode=exclusive key=k",
        "40 2 acquired token=- until=1000",
    ];
    only_the_fault_is_found(Rule::V1, &lines, "30 1 release", "30 2 queued");
}

#[test]
fn a_grant_out_of_the_order_of_the_queue() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "5 1 acquired token=- until=1000",
        "10 2 invoked owner=2 mode=exclusive key=k",
        "15 2 queued",
        "20 3 invoked owner=3 mode=exclusive key=k",
        "25 3 queued",
        "30 1 release",
        "40 3 acquired token=- until=1000",
    ];
    only_the_fault_is_found(Rule::L3, &lines, "35 2 queued", "50 2 failed");
}

#[test]
fn a_waiter_that_is_left_behind() {
    let lines = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "5 1 acquired token=- until=1000",
        "10 2 invoked owner=2 mode=exclusive key=k",
        "15 2 queued",
        "20 2 failed",
        "30 1 release",
        "40 1 released",
    ];
    let (right, wrong) = ("50 1 seen holders=0 waiters=0", "50 1 seen holders=0 waiters=1");
    only_the_fault_is_found(Rule::L4, &lines, right, wrong);
}

#[test]
fn a_recording_that_contradicts_itself() {
    let granted_twice = [
        "0 1 invoked owner=1 mode=exclusive key=k",
        "5 1 acquired token=- until=1000",
        "6 1 acquired token=- until=1000",
    ];
    assert_eq!(broken(&granted_twice), [Rule::History]);
    assert_eq!(broken(&["5 1 released"]), [Rule::History]);
}

#[test]
fn a_violation_prints_the_events_concerned() {
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
