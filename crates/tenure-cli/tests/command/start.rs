//! `tenure run` between the grant of the lock and the start of the command, with a guardian that does not answer.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::stat_field;
use crate::fixture::{Fixture, Process, assert_dead, send, wait_for};

/// Starts `run k [options] -- sh -c SCRIPT`, whose guardian is stopped when the lock becomes free. Also returns the
/// guardian's process id.
fn run_with_a_stopped_guardian(fixture: &Fixture, options: &[&str], script: &str) -> (Process, i32) {
    let holder = fixture.holding(&["k"]);
    let run = fixture.shell(&[&["k", "--label", "mine"], options].concat(), script);
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let child = || {
        read(format!("/proc/{0}/task/{0}/children", run.pid()))
            .trim()
            .parse()
    };
    // Before the child has executed the guardian, `tenure` waits for that.
    let is_guardian = |pid| read(format!("/proc/{pid}/cmdline")).starts_with("tenure-guardian");
    wait_for("the guardian", || child().is_ok_and(is_guardian));
    let guardian: i32 = child().expect("it lives");
    send(guardian, Signal::STOP);
    wait_for("the guardian's stop", || {
        stat_field(guardian, 0).as_deref() == Some("T")
    });
    holder.release();
    (run, guardian)
}

fn wait_for_the_grant(fixture: &Fixture) {
    wait_for("the grant", || {
        fixture.shown("k")["holders"][0]["label"] == "mine"
    });
}

#[test]
fn a_signal_ends_a_start_that_hangs() {
    for on_lost in ["term", "ignore"] {
        for (signal, code) in [
            (Signal::HUP, 129),
            (Signal::INT, 130),
            (Signal::QUIT, 131),
            (Signal::TERM, 143),
        ] {
            let fixture = Fixture::new();
            let (run, _) = run_with_a_stopped_guardian(&fixture, &["--on-lost", on_lost], "touch ran");
            wait_for_the_grant(&fixture);
            run.send(signal);
            let done = run.finish();
            assert_eq!(done.code, code, "{on_lost}: {done:?}");
            assert!(!fixture.path("ran").exists(), "{on_lost}: {done:?}");
            assert!(!fixture.is_busy("k"), "{on_lost}");
        }
    }
}

/// A renewal, after 5 s, reports the loss. Without it, the start would end only with the lease, after 15 s.
#[test]
fn a_lock_lost_before_the_start_starts_nothing() {
    for on_lost in ["term", "kill", "ignore"] {
        let fixture = Fixture::new();
        let (run, _) =
            run_with_a_stopped_guardian(&fixture, &["--lease", "15s", "--on-lost", on_lost], "touch ran");
        wait_for_the_grant(&fixture);
        let began = Instant::now();
        fixture.evict("k");
        let other = fixture.holding(&["k"]);
        let done = run.finish();
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
        assert_eq!(done.code, 123, "{on_lost}: {done:?}");
        assert_eq!(done.stderr.matches("evicted").count(), 1, "{on_lost}: {done:?}");
        assert!(!fixture.path("ran").exists(), "{on_lost}: {done:?}");
        other.release();
    }
}

#[test]
fn a_guardian_that_never_answers_ends_the_start() {
    for on_lost in ["term", "ignore"] {
        let fixture = Fixture::new();
        let (run, _) =
            run_with_a_stopped_guardian(&fixture, &["--lease", "3s", "--on-lost", on_lost], "touch ran");
        let done = run.finish();
        assert_eq!(done.code, 123, "{on_lost}: {done:?}");
        assert!(!fixture.path("ran").exists(), "{on_lost}: {done:?}");
        assert!(!fixture.is_busy("k"), "{on_lost}");
    }
}

/// The command begins while `tenure` is stopped, so `tenure` finds the signal and the guardian's report together.
#[test]
fn a_signal_that_comes_with_the_start_is_forwarded() {
    let fixture = Fixture::new();
    let script = "trap 'echo cleaned > log; exit 7' TERM; echo $$ > pids; while :; do sleep 0.02; done";
    let (run, guardian) = run_with_a_stopped_guardian(&fixture, &[], script);
    wait_for_the_grant(&fixture);
    let state = || stat_field(run.pid().cast_signed(), 0);
    // It sleeps once it has given the order to start.
    wait_for("the order to start", || state().as_deref() == Some("S"));
    run.send(Signal::STOP);
    wait_for("the stop of tenure", || state().as_deref() == Some("T"));
    send(guardian, Signal::CONT);
    let pids = fixture.pids("pids", 1);
    run.send(Signal::TERM);
    run.send(Signal::CONT);
    let done = run.finish();
    assert_eq!(done.code, 7, "{done:?}");
    assert!(fixture.path("log").exists(), "{done:?}");
    assert_dead(&pids);
    assert!(!fixture.is_busy("k"));
}
