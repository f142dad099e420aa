//! Tests what a command inherits: everything from the caller of `tenure`, and nothing from `tenure` itself.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::fixture::{FAR, Fixture, run};
use crate::trials;

trials![
    the_command_has_the_callers_stdin_and_stdout,
    the_command_inherits_no_descriptor_of_ours,
    a_signal_that_the_caller_ignores_stays_ignored,
    an_ignored_sigchld_has_its_default_in_the_command,
    a_signal_that_the_caller_blocks_stays_blocked,
    arguments_of_any_bytes_arrive,
    long_arguments_and_environments_arrive,
    the_command_gets_the_callers_environment_and_our_variables,
    the_command_leads_a_process_group_of_its_own,
];

fn the_command_has_the_callers_stdin_and_stdout() {
    let fixture = Fixture::new();
    let mut run = fixture.start(&FAR, &["cat"]);
    run.stdin().write_all(b"through\n").expect("it reads");
    let outcome = run.finish();
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "through\n"));
}

fn the_command_inherits_no_descriptor_of_ours() {
    let fixture = Fixture::new();
    let list = ["ls", "/proc/self/fd"];
    let alone = Command::new(list[0])
        .args(&list[1..])
        .stdin(Stdio::null())
        .output()
        .expect("ls runs");
    let under = fixture.start(&FAR, &list).finish();
    assert_eq!(under.stdout, String::from_utf8_lossy(&alone.stdout));
}

/// Returns the blocked and ignored signals of a command, without and with a guardian. The Python statement `setup`
/// sets those of the command's caller.
fn masks(setup: &str) -> (String, String) {
    let fixture = Fixture::new();
    let list = ["grep", "-E", "Sig(Blk|Ign):", "/proc/self/status"];
    // A program that Python executes ignores PIPE, but Rust's runtime resets PIPE in the children of `tenure`. So the
    // Python caller resets PIPE itself, and PIPE does not differ with and without a guardian.
    let caller = format!(
        "import os, signal, sys; {setup}; signal.signal(signal.SIGPIPE, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[2:])"
    );
    let mut alone = Command::new("python3");
    alone.args(["-c", &caller, list[0]]).args(list);
    let alone = alone.output().expect("python3 runs");
    let under = fixture.called_by_python(&caller, &list).finish();
    (String::from_utf8_lossy(&alone.stdout).into_owned(), under.stdout)
}

fn a_signal_that_the_caller_ignores_stays_ignored() {
    let (plain, under) = masks("pass");
    assert_eq!(plain, under);
    let (ignoring, under) =
        masks("[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1)]");
    assert_ne!(
        ignoring, plain,
        "the caller's setting is visible without a guardian"
    );
    assert_eq!(ignoring, under);
}

fn an_ignored_sigchld_has_its_default_in_the_command() {
    let (plain, _) = masks("pass");
    let (ignoring, under) = masks("signal.signal(signal.SIGCHLD, signal.SIG_IGN)");
    assert_ne!(
        ignoring, plain,
        "the caller's setting is visible without a guardian"
    );
    assert_eq!(under, plain);
}

fn a_signal_that_the_caller_blocks_stays_blocked() {
    let (blocking, under) =
        masks("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])");
    assert!(
        blocking.contains("SigBlk:\t0000000000004800"),
        "the caller's setting is visible without a guardian: {blocking}"
    );
    assert_eq!(blocking, under);
}

fn arguments_of_any_bytes_arrive() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&FAR, &["printf", "%s|"]);
    command.arg(OsStr::from_bytes(b"\xff\xfe\n")).arg("").arg("a b");
    let file = fixture.path("out");
    command.stdout(std::fs::File::create(&file).expect("the folder is ours"));
    let status = command.stderr(Stdio::null()).status().expect("the probe runs");
    assert!(status.success());
    assert_eq!(std::fs::read(file).expect("it was written"), b"\xff\xfe\n||a b|");
}

fn long_arguments_and_environments_arrive() {
    let fixture = Fixture::new();
    let long = "x".repeat(100_000);
    let mut argv = vec!["sh", "-c", "shift; printf '%s %s %s' $# ${#1} ${#LONG}"];
    argv.extend(["sh", "-"]);
    argv.extend([long.as_str(); 10]);
    let mut command = fixture.command(&FAR, &argv);
    command.env("LONG", &long);
    let outcome = run(command).finish();
    assert_eq!(outcome.stdout.trim(), "10 100000 100000", "{}", outcome.stderr);
}

fn the_command_gets_the_callers_environment_and_our_variables() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&FAR, &["env"]);
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
    let fixture = Fixture::new();
    let run = fixture.start(&FAR, &["sh", "-c", "echo $$; cut -d' ' -f5 /proc/$$/stat"]);
    let pid = run.wait_for_line("started");
    assert_eq!(run.finish().stdout, format!("{pid}\n{pid}\n"));
}
