//! `tenure run` when the lock is lost, or `tenure` itself: no command outlives its lock.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::scene::{Scene, alive, assert_dead, wait_for};

/// A command with a child in its group and one that left it, which writes all three process ids.
const FAMILY: &str = "sleep 600 & a=$!; setsid sleep 600 & echo $$ $a $! > pids; wait";

/// R22, R24: no process of the command outlives a killed tool, nor a stopped one, whatever it does on a loss.
#[test]
fn a_killed_or_stopped_tenure_leaves_no_process_and_frees_within_the_lease() {
    for (signal, on_lost, code) in [
        (Signal::KILL, "term", 137),
        (Signal::KILL, "ignore", 137),
        (Signal::STOP, "term", 123),
    ] {
        let scene = Scene::new();
        let run = scene.shell(&["k", "--lease", "1s", "--on-lost", on_lost], FAMILY);
        let pids = scene.pids("pids", 3);
        run.send(signal);
        let began = Instant::now();
        let hold = scene.hold(&["k"]);
        hold.next("waiting");
        hold.next("acquired");
        assert_dead(&pids);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        run.send(Signal::CONT);
        assert_eq!(run.finish().code, code);
        hold.release();
    }
}

#[test]
fn the_guardian_is_armed_before_the_command_starts() {
    let scene = Scene::new();
    // The command's first act is to stop `tenure`, which is the guardian's parent: whatever `tenure` does only
    // after the start, it does not do.
    let script = "kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat); echo $$ > pid; exec sleep 600";
    let run = scene.shell(&["k", "--lease", "1s"], script);
    let pid = scene.pids("pid", 1)[0];
    wait_for("the command's end", || !alive(pid));
    run.send(Signal::CONT);
    assert_eq!(run.finish().code, 123);
}

#[test]
fn renewals_move_the_deadline_for_as_long_as_the_command_runs() {
    let scene = Scene::new();
    let began = Instant::now();
    let run = scene.shell(&["k", "--lease", "1s"], "touch ran; sleep 3; exit 6");
    scene.wait_for_file("ran");
    assert!(scene.is_busy("k"));
    assert_eq!(run.finish().code, 6);
    assert!(began.elapsed() >= Duration::from_secs(3));
}

/// R24: the command does not run on without its lock.
#[test]
fn an_evicted_command_gets_term_then_kill_and_123() {
    for (on_lost, terms_first) in [("term", true), ("kill", false)] {
        let scene = Scene::new();
        let script = "trap 'touch told' TERM; echo $$ > pid; while :; do sleep 0.02; done";
        let run = scene.shell(&["k", "--lease", "1s", "--on-lost", on_lost], script);
        let pids = scene.pids("pid", 1);
        scene.evict("k");
        let done = run.finish();
        assert_eq!(done.code, 123, "{done:?}");
        assert!(done.stderr.contains("evicted"), "{done:?}");
        assert_eq!(scene.path("told").exists(), terms_first, "{on_lost}");
        assert_dead(&pids);
    }
}

#[test]
fn a_loss_is_acted_on_when_it_is_known_and_not_only_at_the_deadline() {
    let scene = Scene::new();
    let run = scene.shell(&["k", "--lease", "9s"], "echo $$ > pid; exec sleep 600");
    let pids = scene.pids("pid", 1);
    let began = Instant::now();
    scene.evict("k");
    assert_eq!(run.finish().code, 123);
    // The next renewal tells it, at a third of the lease; the deadline's TERM comes after 7 s.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert_dead(&pids);
}

#[test]
fn a_command_whose_first_act_is_to_kill_its_guardian_is_ended_with_all_it_started() {
    let scene = Scene::new();
    let mut codes = Vec::new();
    for _ in 0..10 {
        let script = "setsid sleep 600 & echo $$ $! > pids; kill -KILL $PPID; exec sleep 600";
        let run = scene.shell(&["k"], script);
        let pids = scene.pids("pids", 2);
        codes.push(run.finish().code);
        assert_dead(&pids);
        std::fs::remove_file(scene.path("pids")).expect("it is there");
    }
    assert_eq!(codes, [123; 10], "it ran, so its end is no failure to start it");
    assert!(!scene.is_busy("k"));
}

#[test]
fn on_lost_ignore_warns_and_lets_the_command_end() {
    let scene = Scene::new();
    let script = "touch ready; while ! [ -e go ]; do sleep 0.02; done; exit 6";
    let run = scene.shell(&["k", "--lease", "1s", "--on-lost", "ignore"], script);
    scene.wait_for_file("ready");
    scene.evict("k");
    let other = scene.holding(&["k"]);
    // sleep: time itself is the event, the end of the lease that was lost.
    std::thread::sleep(Duration::from_millis(1500));
    scene.write("go", "", 0o600);
    let done = run.finish();
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.stderr.contains("lost"), "{done:?}");
    other.release();
}

#[test]
fn max_hold_stops_the_command_while_the_lock_is_still_held() {
    let scene = Scene::new();
    for on_lost in ["term", "ignore"] {
        let script = "trap 'touch told' TERM; echo $$ > pid; while :; do sleep 0.02; done";
        let began = Instant::now();
        let options = ["k", "--lease", "3s", "--max-hold", "1200ms", "--on-lost", on_lost];
        let run = scene.shell(&options, script);
        scene.wait_for_file("told");
        assert!(began.elapsed() >= Duration::from_millis(1200));
        let pids = scene.pids("pid", 1);
        assert!(
            !alive(pids[0]) || scene.is_busy("k"),
            "the lock outlives the command"
        );
        assert_eq!(run.finish().code, 123);
        assert_dead(&pids);
        assert!(!scene.is_busy("k"));
        std::fs::remove_file(scene.path("told")).expect("it is there");
        std::fs::remove_file(scene.path("pid")).expect("it is there");
    }
}
