//! `tenure elect`: a command that runs only while its candidate leads.

use rustix::process::Signal;

use crate::scene::{Process, Scene, alive, assert_dead, send, wait_for};

/// Writes its process id behind those of the terms before, and stays until it is told to go.
const STAY: &str = "echo $$ >> terms; exec sleep 600";

/// `elect chair [options] -- sh -c SCRIPT`, started.
fn elect(scene: &Scene, options: &[&str], script: &str) -> Process {
    scene.start(&[&["elect", "chair"], options, &["--", "sh", "-c", script]].concat())
}

fn waiters(scene: &Scene) -> Option<usize> {
    scene.shown("chair")["waiters"].as_array().map(Vec::len)
}

#[test]
fn its_exit_code_is_the_commands_and_the_lead_is_given_up() {
    let scene = Scene::new();
    assert_eq!(elect(&scene, &[], "exit 7").finish().code, 7);
    assert_eq!(elect(&scene, &["--max-hold", "600s"], "exit 7").finish().code, 7);
    assert_eq!(elect(&scene, &[], "kill -TERM $$").finish().code, 143);
    assert_eq!(
        scene.call(&["elect", "chair", "--", "/nonexistent/program"]).code,
        127
    );
    assert_eq!(scene.call(&["elect", "chair", "--", "/"]).code, 126);
    assert!(!scene.is_busy("chair"));
}

#[test]
fn candidates_lead_one_after_the_other_in_their_order() {
    let scene = Scene::new();
    let first = elect(
        &scene,
        &["--label", "first"],
        "touch led1; while [ ! -e go ]; do sleep 0.02; done",
    );
    scene.wait_for_file("led1");
    let second = elect(&scene, &["--label", "second"], "echo second >> order");
    wait_for("the second candidate", || waiters(&scene) == Some(1));
    let third = elect(&scene, &["--label", "third"], "echo third >> order");
    wait_for("the third candidate", || waiters(&scene) == Some(2));
    let shown = scene.shown("chair");
    assert_eq!(shown["holders"][0]["label"], "first");
    assert_eq!(shown["waiters"][0]["label"], "second");
    assert!(!scene.path("order").exists(), "who does not lead does not run");
    scene.write("go", "", 0o600);
    for candidate in [first, second, third] {
        assert_eq!(candidate.finish().code, 0);
    }
    assert_eq!(scene.lines("order", 2), ["second", "third"]);
}

#[test]
fn a_lost_lead_stops_the_command_and_the_candidate_campaigns_again() {
    let scene = Scene::new();
    let candidate = elect(&scene, &["--lease", "1s"], STAY);
    for term in 1..=2 {
        let pid = scene.pids("terms", term)[term - 1];
        assert!(alive(pid));
        scene.evict("chair");
        let pids = scene.pids("terms", term + 1);
        assert_dead(&pids[..term]);
    }
    candidate.send(Signal::TERM);
    let done = candidate.finish();
    assert_eq!(done.code, 143, "{done:?}");
    assert!(done.stderr.contains("evicted"), "{done:?}");
    assert_dead(&scene.pids("terms", 3));
    assert!(!scene.is_busy("chair"));
}

#[test]
fn a_stopped_candidate_does_not_keep_its_command_alive() {
    let scene = Scene::new();
    let first = elect(&scene, &["--lease", "1s"], STAY);
    let pids = scene.pids("terms", 1);
    first.send(Signal::STOP);
    let second = elect(&scene, &[], "touch led2; exec sleep 600");
    scene.wait_for_file("led2");
    assert_dead(&pids);
    first.send(Signal::CONT);
    wait_for("the first as a candidate again", || waiters(&scene) == Some(1));
    second.send(Signal::TERM);
    assert_eq!(second.finish().code, 143);
    let pids = scene.pids("terms", 2);
    first.send(Signal::INT);
    assert_eq!(first.finish().code, 130);
    assert_dead(&pids);
}

#[test]
fn a_guardian_that_dies_ends_the_term_and_not_the_candidacy() {
    let scene = Scene::new();
    let candidate = elect(
        &scene,
        &[],
        "cut -d' ' -f4 /proc/$$/stat >> guardians; echo $$ >> terms; exec sleep 600",
    );
    let pids = scene.pids("terms", 1);
    send(scene.pids("guardians", 1)[0], Signal::KILL);
    let both = scene.pids("terms", 2);
    assert_dead(&pids);
    candidate.send(Signal::TERM);
    assert_eq!(candidate.finish().code, 143);
    assert_dead(&both);
}

#[test]
fn a_signal_while_another_leads_ends_the_candidacy() {
    let scene = Scene::new();
    let leader = elect(&scene, &[], STAY);
    scene.pids("terms", 1);
    let candidate = elect(&scene, &[], "touch ran");
    wait_for("the candidate", || waiters(&scene) == Some(1));
    candidate.send(Signal::INT);
    assert_eq!(candidate.finish().code, 130);
    assert_eq!(waiters(&scene), Some(0), "nothing is left behind");
    leader.send(Signal::TERM);
    assert_eq!(leader.finish().code, 143);
    assert!(!scene.path("ran").exists());
}

#[test]
fn a_signal_while_the_command_is_being_stopped_ends_the_candidacy() {
    let scene = Scene::new();
    let script = "trap 'touch told' TERM; echo $$ >> terms; while :; do sleep 0.02; done";
    let candidate = elect(&scene, &["--lease", "9s", "--grace", "3s"], script);
    let pids = scene.pids("terms", 1);
    scene.evict("chair");
    scene.wait_for_file("told");
    candidate.send(Signal::INT);
    assert_eq!(candidate.finish().code, 130);
    assert_dead(&pids);
    assert_eq!(scene.pids("terms", 1).len(), 1, "no second term");
}

#[test]
fn on_lost_kill_sends_no_term() {
    let scene = Scene::new();
    let script = "trap 'touch told' TERM; echo $$ >> terms; while :; do sleep 0.02; done";
    let candidate = elect(&scene, &["--lease", "1s", "--on-lost", "kill"], script);
    scene.pids("terms", 1);
    scene.evict("chair");
    scene.pids("terms", 2);
    assert!(!scene.path("told").exists());
    candidate.send(Signal::KILL);
}

#[test]
fn a_term_that_reaches_max_hold_ends_with_123() {
    let scene = Scene::new();
    let candidate = elect(&scene, &["--max-hold", "1s", "--lease", "1s"], STAY);
    let pids = scene.pids("terms", 1);
    let done = candidate.finish();
    assert_eq!(done.code, 123, "{done:?}");
    assert!(done.stderr.contains("--max-hold"), "{done:?}");
    assert_dead(&pids);
    assert!(!scene.is_busy("chair"));
}
