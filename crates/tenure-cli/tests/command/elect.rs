//! `tenure elect`: a command runs only while its candidate leads.

use rustix::process::Signal;

use crate::fixture::{Fixture, Process, alive, assert_dead, send, wait_for};

/// A command that appends its process id to the file `terms`, and runs until a signal ends it.
const STAY: &str = "echo $$ >> terms; exec sleep 600";

/// Starts `elect chair [options] -- sh -c SCRIPT`.
fn elect(fixture: &Fixture, options: &[&str], script: &str) -> Process {
    fixture.start(&[&["elect", "chair"], options, &["--", "sh", "-c", script]].concat())
}

fn waiters(fixture: &Fixture) -> Option<usize> {
    fixture.shown("chair")["waiters"].as_array().map(Vec::len)
}

#[test]
fn elect_exits_with_the_commands_code_and_gives_up_the_lead() {
    let fixture = Fixture::new();
    assert_eq!(elect(&fixture, &[], "exit 7").finish().code, 7);
    assert_eq!(
        elect(&fixture, &["--max-hold", "600s"], "exit 7").finish().code,
        7
    );
    assert_eq!(elect(&fixture, &[], "kill -TERM $$").finish().code, 143);
    assert_eq!(
        fixture
            .call(&["elect", "chair", "--", "/nonexistent/program"])
            .code,
        127
    );
    assert_eq!(fixture.call(&["elect", "chair", "--", "/"]).code, 126);
    assert!(!fixture.is_busy("chair"));
}

#[test]
fn candidates_lead_in_the_order_of_their_arrival() {
    let fixture = Fixture::new();
    let first = elect(
        &fixture,
        &["--label", "first"],
        "touch led1; while [ ! -e go ]; do sleep 0.02; done",
    );
    fixture.wait_for_file("led1");
    let second = elect(&fixture, &["--label", "second"], "echo second >> order");
    wait_for("the second candidate", || waiters(&fixture) == Some(1));
    let third = elect(&fixture, &["--label", "third"], "echo third >> order");
    wait_for("the third candidate", || waiters(&fixture) == Some(2));
    let shown = fixture.shown("chair");
    assert_eq!(shown["holders"][0]["label"], "first");
    assert_eq!(shown["waiters"][0]["label"], "second");
    assert!(!fixture.path("order").exists(), "who does not lead does not run");
    fixture.write("go", "", 0o600);
    for candidate in [first, second, third] {
        assert_eq!(candidate.finish().code, 0);
    }
    assert_eq!(fixture.lines("order", 2), ["second", "third"]);
}

#[test]
fn losing_the_lead_stops_the_command_and_campaigns_again() {
    let fixture = Fixture::new();
    let candidate = elect(&fixture, &["--lease", "3s"], STAY);
    for term in 1..=2 {
        let pid = fixture.pids("terms", term)[term - 1];
        assert!(alive(pid));
        fixture.evict("chair");
        let pids = fixture.pids("terms", term + 1);
        assert_dead(&pids[..term]);
    }
    candidate.send(Signal::TERM);
    let done = candidate.finish();
    assert_eq!(done.code, 143, "{done:?}");
    assert!(done.stderr.contains("evicted"), "{done:?}");
    assert_dead(&fixture.pids("terms", 3));
    assert!(!fixture.is_busy("chair"));
}

#[test]
fn a_stopped_candidate_does_not_keep_its_command_alive() {
    let fixture = Fixture::new();
    let first = elect(&fixture, &["--lease", "3s"], STAY);
    let pids = fixture.pids("terms", 1);
    first.send(Signal::STOP);
    let second = elect(&fixture, &[], "touch led2; exec sleep 600");
    fixture.wait_for_file("led2");
    assert_dead(&pids);
    first.send(Signal::CONT);
    wait_for("the first as a candidate again", || waiters(&fixture) == Some(1));
    second.send(Signal::TERM);
    assert_eq!(second.finish().code, 143);
    let pids = fixture.pids("terms", 2);
    first.send(Signal::INT);
    assert_eq!(first.finish().code, 130);
    assert_dead(&pids);
}

#[test]
fn a_guardian_that_dies_ends_the_term_and_not_the_candidacy() {
    let fixture = Fixture::new();
    let candidate = elect(
        &fixture,
        &[],
        "cut -d' ' -f4 /proc/$$/stat >> guardians; echo $$ >> terms; exec sleep 600",
    );
    let pids = fixture.pids("terms", 1);
    send(fixture.pids("guardians", 1)[0], Signal::KILL);
    let both = fixture.pids("terms", 2);
    assert_dead(&pids);
    candidate.send(Signal::TERM);
    assert_eq!(candidate.finish().code, 143);
    assert_dead(&both);
}

#[test]
fn a_signal_while_another_leads_ends_the_candidacy() {
    let fixture = Fixture::new();
    let leader = elect(&fixture, &[], STAY);
    fixture.pids("terms", 1);
    let candidate = elect(&fixture, &[], "touch ran");
    wait_for("the candidate", || waiters(&fixture) == Some(1));
    candidate.send(Signal::INT);
    assert_eq!(candidate.finish().code, 130);
    assert_eq!(waiters(&fixture), Some(0), "nothing is left behind");
    leader.send(Signal::TERM);
    assert_eq!(leader.finish().code, 143);
    assert!(!fixture.path("ran").exists());
}

#[test]
fn a_signal_while_the_command_is_stopped_ends_the_candidacy() {
    let fixture = Fixture::new();
    let script = "trap 'touch got_term' TERM; echo $$ >> terms; while :; do sleep 0.02; done";
    let candidate = elect(&fixture, &["--lease", "9s", "--grace", "3s"], script);
    let pids = fixture.pids("terms", 1);
    fixture.evict("chair");
    fixture.wait_for_file("got_term");
    candidate.send(Signal::INT);
    assert_eq!(candidate.finish().code, 130);
    assert_dead(&pids);
    assert_eq!(fixture.pids("terms", 1).len(), 1, "no second term");
}

#[test]
fn a_signal_before_the_lead_is_lost_ends_the_candidacy() {
    let fixture = Fixture::new();
    let script = "trap 'touch got_term' TERM; echo $$ >> terms; while :; do sleep 0.02; done";
    let candidate = elect(&fixture, &["--lease", "3s"], script);
    let pids = fixture.pids("terms", 1);
    candidate.send(Signal::TERM);
    fixture.wait_for_file("got_term");
    fixture.evict("chair");
    assert_eq!(candidate.finish().code, 143);
    assert_dead(&pids);
    assert_eq!(fixture.pids("terms", 1).len(), 1, "no second term");
}

#[test]
fn a_candidate_whose_command_reloads_at_hup_stays_one() {
    let fixture = Fixture::new();
    let script = "trap 'touch got_hup' HUP; echo $$ >> terms; while :; do sleep 0.02; done";
    let candidate = elect(&fixture, &["--lease", "3s"], script);
    fixture.pids("terms", 1);
    candidate.send(Signal::HUP);
    fixture.wait_for_file("got_hup");
    fixture.evict("chair");
    let pids = fixture.pids("terms", 2);
    candidate.send(Signal::KILL);
    candidate.finish();
    wait_for("the command's end", || !pids.iter().any(|&pid| alive(pid)));
}

#[test]
fn a_start_that_fails_leaves_no_dead_child() {
    let fixture = Fixture::new();
    let leader = elect(&fixture, &[], STAY);
    fixture.pids("terms", 1);
    let candidate = elect(&fixture, &["--lease", "3s"], STAY);
    wait_for("the candidate", || waiters(&fixture) == Some(1));
    let pid = candidate.pid();
    let children = || {
        let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let list = list.expect("the candidate runs");
        list.split_whitespace()
            .map(|child| child.parse().expect("an id"))
            .collect::<Vec<i32>>()
    };
    let [guardian] = children()[..] else {
        panic!("one guardian")
    };
    send(guardian, Signal::STOP);
    leader.send(Signal::TERM);
    leader.finish();
    // The first start takes too long, so the candidate leads once more, with another guardian.
    fixture.pids("terms", 2);
    assert!(children().iter().all(|&child| alive(child)), "{:?}", children());
    assert!(!children().contains(&guardian));
    candidate.send(Signal::TERM);
    assert_eq!(candidate.finish().code, 143);
}

#[test]
fn on_lost_kill_sends_no_term() {
    let fixture = Fixture::new();
    let script = "trap 'touch got_term' TERM; echo $$ >> terms; while :; do sleep 0.02; done";
    let candidate = elect(&fixture, &["--lease", "3s", "--on-lost", "kill"], script);
    fixture.pids("terms", 1);
    fixture.evict("chair");
    fixture.pids("terms", 2);
    assert!(!fixture.path("got_term").exists());
    candidate.send(Signal::KILL);
}

#[test]
fn elect_exits_123_when_a_term_reaches_max_hold() {
    let fixture = Fixture::new();
    let candidate = elect(&fixture, &["--max-hold", "1s", "--lease", "3s"], STAY);
    let pids = fixture.pids("terms", 1);
    let done = candidate.finish();
    assert_eq!(done.code, 123, "{done:?}");
    assert!(done.stderr.contains("--max-hold"), "{done:?}");
    assert_dead(&pids);
    assert!(!fixture.is_busy("chair"));
}
