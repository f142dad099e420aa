//! How a command ends, and that nothing it started outlives it.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_cli::guardian::give_stdin;

use crate::scene::{FAR, Process, Scene, alive, assert_dead, send, wait_for};
use crate::trials;

trials![
    nothing_starts_without_a_deadline_that_lies_ahead,
    term_comes_at_its_time_and_kill_at_its_own,
    a_deadline_ends_the_command_where_it_was_moved_last,
    a_loss_sends_term_and_then_kill,
    descendants_that_left_the_group_hear_term_too,
    what_the_command_leaves_behind_is_killed,
    escapees_die_at_the_deadline,
    everything_dies_at_once_when_tenure_is_killed,
    everything_dies_at_its_deadline_while_tenure_is_stopped,
    a_command_that_keeps_forking_is_ended,
    orphans_are_reaped_while_the_command_runs,
    a_guardian_without_a_command_leaves_with_tenure,
    a_stub_whose_parent_is_not_the_guardian_never_runs_the_command,
    the_guardian_is_deaf_to_what_a_terminal_sends,
];

/// Leaves by setsid, by a double fork and by a group of its own, and writes all four process ids.
pub(crate) const ESCAPE: &str = "setsid sleep 600 & a=$!; (setsid sh -c 'sleep 600 & echo $! > daemon' &); \
    while ! [ -s daemon ]; do sleep 0.01; done; timeout 600 sleep 600 & \
    echo $$ $a $(cat daemon) $! > pids";

fn nothing_starts_without_a_deadline_that_lies_ahead() {
    for words in [&[][..], &["term=0", "kill=60000"]] {
        let scene = Scene::new();
        let outcome = scene.start(words, &["touch", "ran"]).finish();
        assert!(
            outcome.stderr.contains("not started TooLate"),
            "{}",
            outcome.stderr
        );
        assert!(!scene.path("ran").exists(), "{words:?}");
    }
}

fn term_comes_at_its_time_and_kill_at_its_own() {
    let scene = Scene::new();
    let begun = Instant::now();
    let run = scene.shell(
        &["term=500", "kill=1000"],
        "trap 'echo term >> log' TERM; echo $$ > pids; while :; do sleep 0.02; done",
    );
    let pids = scene.pids("pids", 1);
    run.told("Terming(Deadline)");
    let termed = begun.elapsed();
    run.told("Killing(Deadline)");
    let killed = begun.elapsed();
    run.finish().assert_ended(137, "Some(Deadline)");
    // The upper bounds leave room for a busy machine, not for a guardian that forgot.
    assert!((500..1000).contains(&termed.as_millis()), "{termed:?}");
    assert!((1000..2000).contains(&killed.as_millis()), "{killed:?}");
    assert_eq!(
        std::fs::read_to_string(scene.path("log")).expect("TERM was heard"),
        "term\n"
    );
    assert_dead(&pids);
}

fn a_deadline_ends_the_command_where_it_was_moved_last() {
    let hears_term = "trap 'touch log' TERM; while :; do sleep 0.02; done";
    for (deadline, words, script, code, stopped_by) in [
        (
            "without grace",
            &["term=500", "kill=500"][..],
            hears_term,
            137,
            "Some(Deadline)",
        ),
        (
            "moved on",
            &["term=400", "kill=800", "renew=100"],
            "sleep 1.5; exit 3",
            3,
            "None",
        ),
        (
            "moved back",
            &["term=600000", "kill=600000", "back=300"],
            hears_term,
            137,
            "Some(Deadline)",
        ),
        (
            "waived",
            &["term=300", "kill=400", "waive=1"],
            "sleep 1; exit 4",
            4,
            "None",
        ),
    ] {
        let scene = Scene::new();
        let outcome = scene.shell(words, script).finish();
        outcome.assert_ended(code, stopped_by);
        assert!(
            !outcome.stderr.contains("Terming"),
            "{deadline}: {}",
            outcome.stderr
        );
        assert!(!scene.path("log").exists(), "{deadline}");
    }
}

fn a_loss_sends_term_and_then_kill() {
    let scene = Scene::new();
    let script = "trap 'echo term >> log' TERM; while :; do sleep 0.02; done";
    let run = scene.shell(&[&FAR[..], &["stop=300", "grace=300"]].concat(), script);
    run.finish().assert_ended(137, "Some(Lost)");
    assert_eq!(
        std::fs::read_to_string(scene.path("log")).expect("TERM was heard"),
        "term\n"
    );
    let polite = scene.shell(
        &[&FAR[..], &["stop=300", "grace=60000"]].concat(),
        "trap 'exit 5' TERM; while :; do sleep 0.02; done",
    );
    assert_eq!(polite.finish().code, 5);
}

fn descendants_that_left_the_group_hear_term_too() {
    let scene = Scene::new();
    let away = "trap 'touch heard; exit' TERM; echo $$ > away; while :; do sleep 0.02; done";
    let script = format!(
        "setsid sh -c \"{}\" & trap : TERM; echo $$ > pids; while :; do sleep 0.02; done",
        away.replace('$', "\\$")
    );
    let run = scene.shell(&[&FAR[..], &["stop=700", "grace=60000"]].concat(), &script);
    let leader = scene.pids("pids", 1)[0];
    scene.pids("away", 1);
    run.told("Terming(Lost)");
    scene.wait_for_file("heard");
    assert!(alive(leader), "the grace has not ended");
}

/// R24: grandchildren do not linger.
fn what_the_command_leaves_behind_is_killed() {
    let scene = Scene::new();
    let run = scene.shell(&FAR, &format!("{ESCAPE}; exit 6"));
    run.finish().assert_ended(6, "None");
    assert_dead(&scene.pids("pids", 4)[1..]);
}

/// R24: nor do those that left the group.
fn escapees_die_at_the_deadline() {
    let scene = Scene::new();
    let run = scene.shell(
        &["term=1200", "kill=1500"],
        &format!("trap : TERM; {ESCAPE}; while :; do wait; done"),
    );
    let pids = scene.pids("pids", 4);
    assert!(pids.iter().all(|&pid| alive(pid)), "the deadline has not come");
    assert_eq!(run.finish().code, 137);
    assert_dead(&pids);
}

/// R24: the children die with the tool, also where the deadline was waived.
fn everything_dies_at_once_when_tenure_is_killed() {
    for words in [&FAR[..], &["waive=1"]] {
        let scene = Scene::new();
        let run = scene.shell(words, &format!("trap : TERM; {ESCAPE}; wait"));
        let guardian = run.told("guardian");
        let mut pids = scene.pids("pids", 4);
        pids.push(guardian);
        run.send(Signal::KILL);
        wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
    }
}

fn everything_dies_at_its_deadline_while_tenure_is_stopped() {
    let scene = Scene::new();
    let begun = Instant::now();
    let run = scene.shell(
        &["term=1000", "kill=1500", "renew=100"],
        &format!("trap : TERM; {ESCAPE}; while :; do wait; done"),
    );
    let pids = scene.pids("pids", 4);
    run.send(Signal::STOP);
    let stopped = begun.elapsed();
    wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
    let took = begun.elapsed();
    run.send(Signal::CONT);
    assert!(
        took < stopped + Duration::from_millis(1500) + Duration::from_millis(1000),
        "{took:?} after {stopped:?}"
    );
    run.finish().assert_ended(137, "Some(Deadline)");
}

fn a_command_that_keeps_forking_is_ended() {
    // The marker is an argument of every process.
    let marker = format!("600.{}", std::process::id());
    for script in [
        // Each leaves the group, and there is always another on its way.
        format!("touch begun; while :; do setsid sleep {marker} & done"),
        // Each link starts the next in a session of its own and ends: no process id lives for long.
        format!("sh ./{marker}; touch begun; exec sleep 600"),
    ] {
        let scene = Scene::new();
        scene.write(&marker, &format!("setsid sh ./{marker} & exit 0"), 0o600);
        let run = scene.shell(&["term=1200", "kill=1200"], &script);
        scene.wait_for_file("begun");
        assert_eq!(run.finish().code, 137);
        assert_eq!(running(&marker), 0, "{script}");
    }
}

/// How many processes have this word in their arguments.
fn running(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            String::from_utf8_lossy(line)
                .split('\0')
                .any(|arg| arg.ends_with(word))
        })
        .count()
}

fn orphans_are_reaped_while_the_command_runs() {
    let scene = Scene::new();
    let run = scene.shell(&FAR, "(sleep 0.1 & echo $! > orphan); exec sleep 600");
    run.told("started");
    let orphan = scene.pids("orphan", 1)[0];
    wait_for("the orphan's burial", || {
        !std::path::Path::new(&format!("/proc/{orphan}")).exists()
    });
}

fn a_guardian_without_a_command_leaves_with_tenure() {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let guardian = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .arg0("tenure-guardian")
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .spawn();
    drop(ours);
    let guardian = Process::of(guardian.expect("the guardian starts"));
    assert_eq!(guardian.finish().code, 0);
}

fn a_stub_whose_parent_is_not_the_guardian_never_runs_the_command() {
    let scene = Scene::new();
    let stub = |parent: u32| {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        // The descriptor that lets it run is there before it asks.
        let input = File::open("/dev/null").expect("the null device");
        give_stdin(&ours, input.as_fd()).expect("it is sent");
        let stub = Command::new(env!("CARGO_BIN_EXE_tenure"))
            .arg0("tenure-stub")
            .args([&parent.to_string(), "touch", "ran"])
            .current_dir(scene.folder.path())
            .stdin(std::os::fd::OwnedFd::from(theirs))
            .spawn();
        Process::of(stub.expect("the stub starts")).exit_code();
        scene.path("ran").exists()
    };
    let mut gone = Command::new("true").spawn().expect("true starts");
    gone.wait().expect("our child");
    assert!(!stub(gone.id()), "the parent had died");
    assert!(
        stub(std::process::id()),
        "the parent was alive: the test itself is sound"
    );
}

fn the_guardian_is_deaf_to_what_a_terminal_sends() {
    let scene = Scene::new();
    let run = scene.start(&FAR, &["cat"]);
    let guardian = run.told("guardian");
    run.told("started");
    for signal in [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::TSTP,
        Signal::USR1,
        Signal::USR2,
        Signal::TTIN,
        Signal::TTOU,
    ] {
        send(guardian, signal);
    }
    let outcome = run.finish();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("GuardianDied"), "{}", outcome.stderr);
}
