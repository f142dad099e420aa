//! What ends when the guardian dies or stands still.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::endings::ESCAPE;
use crate::scene::{FAR, Run, Scene, alive, assert_dead, send, wait_for};
use crate::trials;

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

fn everything_dies_when_the_guardian_is_killed() {
    let scene = Scene::new();
    let mut run = scene.shell(&FAR, &format!("trap : TERM; {ESCAPE}; while :; do wait; done"));
    let guardian = run.told("guardian");
    let pids = scene.pids("pids", 4);
    send(guardian, Signal::KILL);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(137), "{}", outcome.told);
    assert!(
        outcome.told.contains("stopped_by: Some(GuardianDied)"),
        "{}",
        outcome.told
    );
    assert_dead(&pids);
}

/// R24: if nobody is left to act, the leader dies with the guardian.
fn the_leader_dies_with_the_guardian_though_tenure_is_stopped() {
    let scene = Scene::new();
    let mut run = scene.shell(&FAR, "echo $$ > pid; exec sleep 600");
    let guardian = run.told("guardian");
    let leader = scene.pids("pid", 1)[0];
    send(run.pid(), Signal::STOP);
    send(guardian, Signal::KILL);
    wait_for("the leader's end", || !alive(leader));
    send(run.pid(), Signal::CONT);
    run.finish();
}

fn a_stopped_guardian_does_not_save_the_command() {
    let scene = Scene::new();
    let mut run = scene.shell(&["term=1500", "kill=2000"], &format!("{ESCAPE}; wait"));
    let guardian = run.told("guardian");
    let pids = scene.pids("pids", 4);
    send(guardian, Signal::STOP);
    let outcome = run.finish();
    assert!(
        outcome.told.contains("stopped_by: Some(Deadline)"),
        "{}",
        outcome.told
    );
    assert_dead(&pids);
}

fn only_the_commands_processes_die_with_the_guardian() {
    let scene = Scene::new();
    let probe = std::env::current_exe().expect("our own path");
    let script = format!(
        "sleep 600 & echo $! > before; exec -a {} {} term=600000 kill=600000 -- sleep 600",
        crate::probe::NAME,
        probe.display(),
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(scene.folder.path());
    shell
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = shell.spawn().expect("bash starts");
    let before = scene.pids("before", 1)[0];
    let mut told = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let guardian = word_after(&mut told, "guardian ");
    let leader = word_after(&mut told, "started ");
    send(guardian, Signal::KILL);
    wait_for("the probe's end", || {
        child.try_wait().expect("our child").is_some()
    });
    assert!(!alive(leader));
    assert!(
        alive(before),
        "a process that was there before is not ours to end"
    );
    send(before, Signal::KILL);
}

fn an_orphan_from_before_the_command_outlives_the_guardian() {
    let scene = Scene::new();
    let probe = std::env::current_exe().expect("our own path");
    let script = format!(
        "(sleep 600 & echo $! > before; while [ ! -e go ]; do sleep 0.01; done) & \
         while [ ! -s before ]; do sleep 0.01; done; exec -a {} {} term=600000 kill=600000 -- sleep 600",
        crate::probe::NAME,
        probe.display(),
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(scene.folder.path());
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut run = Run::of(shell);
    let before = scene.pids("before", 1)[0];
    let guardian = run.told("guardian");
    let leader = run.told("started");
    std::fs::write(scene.path("go"), "").expect("the folder is ours");
    wait_for("the orphan's adoption", || parent(before) == Some(run.pid()));
    send(guardian, Signal::KILL);
    wait_for("the probe's end", || {
        run.child.try_wait().expect("our child").is_some()
    });
    assert!(!alive(leader));
    assert!(alive(before), "it was there before the command");
    send(before, Signal::KILL);
}

/// The process id of a process's parent.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
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
    let probe = std::env::current_exe().expect("our own path");
    let mut debugger = Command::new("python3");
    debugger.args(["-c", DEBUGGER]).arg(probe).arg(crate::probe::NAME);
    debugger
        .args(FAR)
        .args(["--", "sh", "-c", &format!("{ESCAPE}; wait")]);
    debugger.current_dir(scene.folder.path());
    debugger
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut run = Run::of(debugger);
    let guardian = run.told("guardian");
    let pids = scene.pids("pids", 4);
    // Renamed into place, so that the debugger reads all of it.
    std::fs::write(scene.path("part"), guardian.to_string()).expect("the folder is ours");
    std::fs::rename(scene.path("part"), scene.path("trace")).expect("the folder is ours");
    scene.wait_for_file("traced");
    send(guardian, Signal::KILL);
    wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
    std::fs::write(scene.path("release"), "").expect("the folder is ours");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(137), "{}", outcome.told);
    assert!(
        outcome.told.contains("stopped_by: Some(GuardianDied)"),
        "{}",
        outcome.told
    );
}

/// A probe whose caller ignores SIGCHLD, so that the kernel would reap its children at once.
fn under_a_caller_that_ignores_sigchld(scene: &Scene, script: &str) -> Run {
    let probe = std::env::current_exe().expect("our own path");
    let caller = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); \
        os.execv(sys.argv[1], sys.argv[2:])";
    let mut command = Command::new("python3");
    command.args(["-c", caller]).arg(probe).arg(crate::probe::NAME);
    command.args(FAR).args(["--", "sh", "-c", script]);
    command.current_dir(scene.folder.path());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Run::of(command)
}

fn a_caller_that_ignores_sigchld_learns_the_commands_end() {
    let scene = Scene::new();
    // A shell waits for its child: that works only if the command does not inherit the ignored signal.
    let run = under_a_caller_that_ignores_sigchld(&scene, "sh -c 'exit 7'");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(7), "{}", outcome.told);
    assert!(outcome.told.contains("stopped_by: None"), "{}", outcome.told);
}

fn a_caller_that_ignores_sigchld_outlives_its_guardian() {
    let scene = Scene::new();
    let mut run = under_a_caller_that_ignores_sigchld(&scene, &format!("{ESCAPE}; wait"));
    let guardian = run.told("guardian");
    let pids = scene.pids("pids", 4);
    send(guardian, Signal::KILL);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(137), "{}", outcome.told);
    assert_dead(&pids);
}

fn word_after(lines: &mut impl std::io::BufRead, start: &str) -> i32 {
    loop {
        let mut line = String::new();
        assert_ne!(
            lines.read_line(&mut line).expect("readable"),
            0,
            "{start:?} was never told"
        );
        if let Some(word) = line.strip_prefix(start) {
            return word.trim().parse().expect("a number");
        }
    }
}
