//! What the command finds when it starts: the caller's world, and nothing of ours.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::scene::{FAR, Scene, run};
use crate::trials;

trials![
    stdin_and_stdout_are_the_callers,
    the_command_inherits_no_descriptor_of_ours,
    what_the_caller_ignored_stays_ignored,
    an_ignored_sigchld_has_its_default_in_the_command,
    what_the_caller_blocked_stays_blocked,
    arguments_of_any_bytes_arrive,
    long_arguments_and_environments_arrive,
    the_environment_is_the_callers_and_what_we_add,
    the_command_leads_a_process_group_of_its_own,
];

fn stdin_and_stdout_are_the_callers() {
    let scene = Scene::new();
    let mut run = scene.start(&FAR, &["cat"]);
    run.stdin().write_all(b"through\n").expect("it reads");
    let outcome = run.finish();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "through\n"));
}

fn the_command_inherits_no_descriptor_of_ours() {
    let scene = Scene::new();
    let list = ["ls", "/proc/self/fd"];
    let alone = Command::new(list[0])
        .args(&list[1..])
        .stdin(Stdio::null())
        .output()
        .expect("ls runs");
    let under = scene.start(&FAR, &list).finish();
    assert_eq!(under.stdout, String::from_utf8_lossy(&alone.stdout));
}

/// The signal masks a command sees, alone and under the guardian, when the caller was set up by this Python statement.
fn masks(setup: &str) -> (String, String) {
    let scene = Scene::new();
    let list = ["grep", "-E", "Sig(Blk|Ign):", "/proc/self/status"];
    // Python itself ignores PIPE and XFSZ for its children; Rust's runtime resets PIPE for ours.
    let caller = format!(
        "import os, signal, sys; {setup}; signal.signal(signal.SIGPIPE, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[2:])"
    );
    let mut alone = Command::new("python3");
    alone.args(["-c", &caller, list[0]]).args(list);
    let alone = alone.output().expect("python3 runs");
    let under = scene.called_by_python(&caller, &list).finish();
    (String::from_utf8_lossy(&alone.stdout).into_owned(), under.stdout)
}

fn what_the_caller_ignored_stays_ignored() {
    let (plain, under) = masks("pass");
    assert_eq!(plain, under);
    let (ignoring, under) =
        masks("[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1)]");
    assert_ne!(ignoring, plain, "the test itself is sound");
    assert_eq!(ignoring, under);
}

fn an_ignored_sigchld_has_its_default_in_the_command() {
    let (plain, _) = masks("pass");
    let (ignoring, under) = masks("signal.signal(signal.SIGCHLD, signal.SIG_IGN)");
    assert_ne!(ignoring, plain, "the test itself is sound");
    assert_eq!(under, plain);
}

fn what_the_caller_blocked_stays_blocked() {
    let (blocking, under) =
        masks("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])");
    assert!(
        blocking.contains("SigBlk:\t0000000000004800"),
        "the test itself is sound: {blocking}"
    );
    assert_eq!(blocking, under);
}

fn arguments_of_any_bytes_arrive() {
    let scene = Scene::new();
    let mut command = scene.command(&FAR, &["printf", "%s|"]);
    command.arg(OsStr::from_bytes(b"\xff\xfe\n")).arg("").arg("a b");
    let file = scene.path("out");
    command.stdout(std::fs::File::create(&file).expect("the folder is ours"));
    let status = command.stderr(Stdio::null()).status().expect("the probe runs");
    assert!(status.success());
    assert_eq!(std::fs::read(file).expect("it was written"), b"\xff\xfe\n||a b|");
}

fn long_arguments_and_environments_arrive() {
    let scene = Scene::new();
    let long = "x".repeat(100_000);
    let mut argv = vec!["sh", "-c", "shift; printf '%s %s %s' $# ${#1} ${#LONG}"];
    argv.extend(["sh", "-"]);
    argv.extend([long.as_str(); 10]);
    let mut command = scene.command(&FAR, &argv);
    command.env("LONG", &long);
    let outcome = run(command).finish();
    assert_eq!(outcome.stdout.trim(), "10 100000 100000", "{}", outcome.stderr);
}

fn the_environment_is_the_callers_and_what_we_add() {
    let scene = Scene::new();
    let mut command = scene.command(&FAR, &["env"]);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("MINE", "1");
    let outcome = run(command).finish();
    let mut names: Vec<&str> = outcome
        .stdout
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["MINE", "PATH", "TENURE_KEY"]);
}

fn the_command_leads_a_process_group_of_its_own() {
    let scene = Scene::new();
    let run = scene.start(&FAR, &["sh", "-c", "echo $$; cut -d' ' -f5 /proc/$$/stat"]);
    let pid = run.told("started");
    assert_eq!(run.finish().stdout, format!("{pid}\n{pid}\n"));
}
