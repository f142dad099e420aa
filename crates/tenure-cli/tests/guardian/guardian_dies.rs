//! What ends when the guardian dies or stands still.

use std::process::Command;

use rustix::process::Signal;

use crate::endings::ESCAPE;
use crate::scene::{FAR, Process, Scene, alive, assert_dead, run, send, stat_field, wait_for};
use crate::{probe, trials};

trials![
    everything_dies_when_the_guardian_is_killed,
    the_leader_dies_with_the_guardian_though_tenure_is_stopped,
    a_stopped_guardian_does_not_save_the_command,
    only_the_commands_processes_die_with_the_guardian,
    an_orphan_from_before_the_command_outlives_the_guardian,
    a_dead_guardian_that_stays_unreaped_saves_no_process,
    a_caller_that_ignores_sigchld_learns_the_commands_end,
    a_caller_that_ignores_sigchld_outlives_its_guardian,
];

/// Asserts that the probe ends everything that `ESCAPE` has started, once its guardian has got this signal.
fn assert_ends_everything(scene: &Scene, run: Process, signal: Signal, stopped_by: &str) {
    let guardian = run.told("guardian");
    let pids = scene.pids("pids", 4);
    send(guardian, signal);
    run.finish().assert_ended(137, stopped_by);
    assert_dead(&pids);
}

fn everything_dies_when_the_guardian_is_killed() {
    let scene = Scene::new();
    let run = scene.shell(&FAR, &format!("trap : TERM; {ESCAPE}; while :; do wait; done"));
    assert_ends_everything(&scene, run, Signal::KILL, "Some(GuardianDied)");
}

/// R24: if nobody is left to act, the leader dies with the guardian.
fn the_leader_dies_with_the_guardian_though_tenure_is_stopped() {
    let scene = Scene::new();
    let run = scene.shell(&FAR, "echo $$ > pid; exec sleep 600");
    let guardian = run.told("guardian");
    let leader = scene.pids("pid", 1)[0];
    run.send(Signal::STOP);
    send(guardian, Signal::KILL);
    wait_for("the leader's end", || !alive(leader));
    run.send(Signal::CONT);
    run.finish();
}

fn a_stopped_guardian_does_not_save_the_command() {
    let scene = Scene::new();
    let run = scene.shell(&["term=1500", "kill=2000"], &format!("{ESCAPE}; wait"));
    assert_ends_everything(&scene, run, Signal::STOP, "Some(Deadline)");
}

/// Starts a probe in a shell that has left the process in the file `before`, and kills its guardian: once `adopt` has
/// seen to it that this process is the probe's child.
fn assert_outlives_the_guardian(shell: &str, adopt: impl Fn(&Scene, &Process, i32)) {
    let scene = Scene::new();
    let probe = std::env::current_exe().expect("our own path");
    let (name, probe, far) = (probe::NAME, probe.display(), FAR.join(" "));
    let script = format!("{shell} exec -a {name} {probe} {far} -- sleep 600");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(scene.folder.path());
    let mut run = run(bash);
    let before = scene.pids("before", 1)[0];
    let guardian = run.told("guardian");
    let leader = run.told("started");
    adopt(&scene, &run, before);
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
    assert_outlives_the_guardian(shell, |scene, run, orphan| {
        scene.write("go", "", 0o600);
        let parent = run.pid().to_string();
        wait_for("the orphan's adoption", || {
            stat_field(orphan, 1).as_ref() == Some(&parent)
        });
    });
}

/// Starts the program in its arguments, and attaches to the process named in the file `trace` as a debugger does: when
/// that process dies, its parent cannot reap it until the debugger has seen its end, here on the file `release`.
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

fn a_dead_guardian_that_stays_unreaped_saves_no_process() {
    let scene = Scene::new();
    let run = scene.called_by_python(DEBUGGER, &["sh", "-c", &format!("{ESCAPE}; wait")]);
    let guardian = run.told("guardian");
    let pids = scene.pids("pids", 4);
    // Renamed into place, so that the debugger reads all of it.
    scene.write("part", &guardian.to_string(), 0o600);
    std::fs::rename(scene.path("part"), scene.path("trace")).expect("the folder is ours");
    scene.wait_for_file("traced");
    send(guardian, Signal::KILL);
    wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
    scene.write("release", "", 0o600);
    run.finish().assert_ended(137, "Some(GuardianDied)");
}

/// A probe whose caller ignores SIGCHLD, so that the kernel would reap its children at once.
fn under_a_caller_that_ignores_sigchld(scene: &Scene, script: &str) -> Process {
    let caller = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); \
        os.execv(sys.argv[1], sys.argv[2:])";
    scene.called_by_python(caller, &["sh", "-c", script])
}

fn a_caller_that_ignores_sigchld_learns_the_commands_end() {
    let scene = Scene::new();
    // A shell waits for its child: that works only if the command does not inherit the ignored signal.
    let run = under_a_caller_that_ignores_sigchld(&scene, "sh -c 'exit 7'");
    run.finish().assert_ended(7, "None");
}

fn a_caller_that_ignores_sigchld_outlives_its_guardian() {
    let scene = Scene::new();
    let run = under_a_caller_that_ignores_sigchld(&scene, &format!("{ESCAPE}; wait"));
    assert_ends_everything(&scene, run, Signal::KILL, "Some(GuardianDied)");
}
