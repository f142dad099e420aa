//! Tests what happens to the command's processes when the guardian is killed or stopped.

use std::process::Command;

use rustix::process::Signal;

use crate::endings::ESCAPE;
use crate::fixture::{FAR, Fixture, Process, alive, assert_dead, run, send, stat_field, wait_for};
use crate::{probe, trials};

trials![
    everything_dies_when_the_guardian_is_killed,
    the_leader_dies_with_the_guardian_though_tenure_is_stopped,
    a_stopped_guardian_does_not_save_the_command,
    a_guardian_that_is_stopped_before_the_start_is_reported,
    a_command_that_begins_while_its_start_is_cancelled_is_killed,
    only_the_commands_processes_die_with_the_guardian,
    an_orphan_from_before_the_command_outlives_the_guardian,
    an_unreaped_dead_guardian_does_not_delay_the_kill,
    a_caller_that_ignores_sigchld_learns_the_commands_end,
    a_caller_that_ignores_sigchld_outlives_its_guardian,
];

/// Sends the guardian this signal. Asserts that all processes of the command, the script `ESCAPE`, die, even those
/// that left its process group, and that the run reports `stopped_by` as the reason.
fn assert_ends_everything(fixture: &Fixture, run: Process, signal: Signal, stopped_by: &str) {
    let guardian = run.wait_for_line("guardian");
    let pids = fixture.pids("pids", 4);
    send(guardian, signal);
    run.finish().assert_ended(137, stopped_by);
    assert_dead(&pids);
}

fn everything_dies_when_the_guardian_is_killed() {
    let fixture = Fixture::new();
    let run = fixture.shell(&FAR, &format!("trap : TERM; {ESCAPE}; while :; do wait; done"));
    assert_ends_everything(&fixture, run, Signal::KILL, "Some(GuardianDied)");
}

/// R24: if `tenure` is stopped and the guardian dies, the command's first process dies with the guardian.
fn the_leader_dies_with_the_guardian_though_tenure_is_stopped() {
    let fixture = Fixture::new();
    let run = fixture.shell(&FAR, "echo $$ > pid; exec sleep 600");
    let guardian = run.wait_for_line("guardian");
    let leader = fixture.pids("pid", 1)[0];
    run.send(Signal::STOP);
    send(guardian, Signal::KILL);
    wait_for("the leader's end", || !alive(leader));
    run.send(Signal::CONT);
    run.finish();
}

fn a_stopped_guardian_does_not_save_the_command() {
    let fixture = Fixture::new();
    let script = format!("{ESCAPE}; touch ready; wait");
    let run = fixture.shell(&["ready=0", "term=2500", "kill=3000"], &script);
    assert_ends_everything(&fixture, run, Signal::STOP, "Some(Deadline)");
}

fn a_guardian_that_is_stopped_before_the_start_is_reported() {
    let fixture = Fixture::new();
    // The long argument does not fit into the guardian's socket.
    for argument in ["ran", &"x".repeat(100_000)] {
        let run = fixture.start(&["term=100", "kill=200", "stopped=0"], &["touch", argument]);
        send(run.wait_for_line("guardian"), Signal::STOP);
        let outcome = run.finish();
        assert!(
            outcome.stderr.contains("not started TooLate"),
            "{}",
            outcome.stderr
        );
        assert_eq!(outcome.code, 123);
    }
    assert!(!fixture.path("ran").exists());
}

/// The guardian is stopped until it has the orders. The command begins before the probe cancels its start.
fn a_command_that_begins_while_its_start_is_cancelled_is_killed() {
    let fixture = Fixture::new();
    let script = format!("{ESCAPE}; touch ready; wait");
    let run = fixture.shell(&[&FAR[..], &["stopped=0", "cancel=200"]].concat(), &script);
    let guardian = run.wait_for_line("guardian");
    send(guardian, Signal::STOP);
    run.wait_for_line("ordered");
    send(guardian, Signal::CONT);
    let pids = fixture.pids("pids", 4);
    assert_eq!(run.finish().code, 0);
    assert_dead(&pids);
}

/// Runs the script `shell`, which starts a process and writes its id to the file `before`. Then the shell executes
/// the probe, which takes the place of `tenure run`. Calls `adopt`, which must return only once the process is a
/// child of the probe. Then kills the guardian, and asserts that the process lives on.
fn assert_outlives_the_guardian(shell: &str, adopt: impl Fn(&Fixture, &Process, i32)) {
    let fixture = Fixture::new();
    let probe = std::env::current_exe().expect("our own path");
    let (name, probe, far) = (probe::NAME, probe.display(), FAR.join(" "));
    let script = format!("{shell} exec -a {name} {probe} {far} -- sleep 600");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(fixture.folder.path());
    let mut run = run(bash);
    let before = fixture.pids("before", 1)[0];
    let guardian = run.wait_for_line("guardian");
    let leader = run.wait_for_line("started");
    adopt(&fixture, &run, before);
    send(guardian, Signal::KILL);
    run.exit_code();
    assert!(!alive(leader));
    assert!(
        alive(before),
        "a process that was there before is not ours to end"
    );
    send(before, Signal::KILL);
}

fn only_the_commands_processes_die_with_the_guardian() {
    assert_outlives_the_guardian("sleep 600 & echo $! > before;", |_, _, _| {});
}

fn an_orphan_from_before_the_command_outlives_the_guardian() {
    let shell = "(sleep 600 & echo $! > before; while [ ! -e go ]; do sleep 0.01; done) & \
        while [ ! -s before ]; do sleep 0.01; done;";
    assert_outlives_the_guardian(shell, |fixture, run, orphan| {
        fixture.write("go", "", 0o600);
        let parent = run.pid().to_string();
        wait_for("the orphan's adoption", || {
            stat_field(orphan, 1).as_ref() == Some(&parent)
        });
    });
}

/// Python program that starts the program in its arguments, and attaches as a debugger to the process whose id is in
/// the file `trace`. When that process dies, its parent cannot reap it until the debugger has done so. The debugger
/// does so only once the file `release` exists.
const DEBUGGER: &str = "\
import ctypes, os, subprocess, sys, threading
def wait_for(name):
    while not os.path.exists(name):
        threading.Event().wait(0.01)
run = subprocess.Popen(sys.argv[2:], executable=sys.argv[1])
wait_for('trace')
pid = int(open('trace').read())
assert ctypes.CDLL(None, use_errno=True).ptrace(0x4206, pid, None, None) == 0, os.strerror(ctypes.get_errno())
open('traced', 'w').close()
wait_for('release')
os.waitpid(pid, 0x40000000)
sys.exit(run.wait())
";

fn an_unreaped_dead_guardian_does_not_delay_the_kill() {
    let fixture = Fixture::new();
    let run = fixture.called_by_python(DEBUGGER, &["sh", "-c", &format!("{ESCAPE}; wait")]);
    let guardian = run.wait_for_line("guardian");
    let pids = fixture.pids("pids", 4);
    // Rename the file into place, so that the debugger never reads a part of it.
    fixture.write("part", &guardian.to_string(), 0o600);
    std::fs::rename(fixture.path("part"), fixture.path("trace")).expect("the folder is ours");
    fixture.wait_for_file("traced");
    send(guardian, Signal::KILL);
    wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
    fixture.write("release", "", 0o600);
    run.finish().assert_ended(137, "Some(GuardianDied)");
}

/// Starts a probe, which takes the place of `tenure run`. Its caller ignores SIGCHLD: unless the probe sets a handler,
/// the kernel reaps the probe's children at once.
fn under_a_caller_that_ignores_sigchld(fixture: &Fixture, script: &str) -> Process {
    let caller = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); \
        os.execv(sys.argv[1], sys.argv[2:])";
    fixture.called_by_python(caller, &["sh", "-c", script])
}

fn a_caller_that_ignores_sigchld_learns_the_commands_end() {
    let fixture = Fixture::new();
    // `sh` is the command. If it had inherited the ignored SIGCHLD, it could not learn its children's exit codes.
    let run = under_a_caller_that_ignores_sigchld(&fixture, "sh -c 'exit 7'");
    run.finish().assert_ended(7, "None");
}

fn a_caller_that_ignores_sigchld_outlives_its_guardian() {
    let fixture = Fixture::new();
    let run = under_a_caller_that_ignores_sigchld(&fixture, &format!("{ESCAPE}; wait"));
    assert_ends_everything(&fixture, run, Signal::KILL, "Some(GuardianDied)");
}
