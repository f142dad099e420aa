//! Two processes are started at once: one runs the job, the other says that it is busy.
#![cfg(unix)]

#[path = "../../scene.rs"]
mod scene;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use scene::{Process, Scene, tenure_command};

/// Starts two at once, of which one must run and the other say this; answers both, the one that runs first.
fn one_runs(start: impl Fn() -> Command, busy: Option<&str>) -> (Process, Process) {
    // The job reads until its input ends, and that is ours: so while one runs, the other finds the lock busy.
    let both = [Process::start(start()), Process::start(start())];
    let mut both = both.map(|process| (process.line(), process));
    both.sort_by_key(|(said, _)| said.as_deref() != Some("running"));
    let [(said, running), (other_said, other)] = both;
    assert_eq!((said.as_deref(), other_said.as_deref()), (Some("running"), busy));
    (running, other)
}

fn runs(command: Command) -> Process {
    let running = Process::start(command);
    assert_eq!(running.line().as_deref(), Some("running"));
    running
}

fn finishes(mut running: Process) {
    running.stdin().write_all(b"19\n23\n").unwrap();
    running.close_stdin();
    assert_eq!(running.line().as_deref(), Some("report: 2 sales, 42 in total"));
    assert_eq!(running.exit_code(), 0);
}

#[test]
fn of_two_processes_started_at_once_one_runs_and_the_other_is_busy() {
    let scene = Scene::new();
    let start = || scene.command(env!("CARGO_BIN_EXE_cron-job"));
    let (running, mut busy) = one_runs(start, Some("busy: the report runs elsewhere"));
    assert_eq!((busy.line(), busy.exit_code()), (None, 0));
    finishes(running);

    // It is free again.
    finishes(runs(start()));
}

#[test]
fn a_job_that_is_asked_to_stop_ends_as_failed_and_gives_its_lock_back() {
    let scene = Scene::new();
    let start = || scene.command(env!("CARGO_BIN_EXE_cron-job"));
    for signal in [Signal::INT, Signal::TERM] {
        let mut running = runs(start());
        running.send(signal);
        assert_eq!(running.exit_code(), 1);
    }
    // It is free again.
    finishes(runs(start()));
}

#[test]
fn the_line_of_crontab_does_the_same() {
    let scene = Scene::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crontab = fs::read_to_string(folder.join("crontab")).unwrap();
    let line = crontab.lines().find(|line| !line.starts_with('#')).unwrap();
    let job = line.splitn(6, char::is_whitespace).last().unwrap();

    let tenure = tenure_command();
    let mut path = OsString::from(tenure.parent().unwrap());
    path.push(":/usr/bin:/bin");
    // As cron does it: an empty environment, a shell, and the store from a file.
    let config = scene.path("home/.config/tenure");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("url"), scene.url()).unwrap();
    let start = || {
        let mut command = Command::new("/bin/sh");
        // What goes to stderr would be mailed too.
        command.args(["-c", &format!("exec 2>&1; {job}")]);
        command.current_dir(folder).env_clear();
        command.env("PATH", &path).env("HOME", scene.path("home"));
        command
    };
    // Not a word, which cron would mail.
    let (running, mut busy) = one_runs(start, None);
    assert_eq!(busy.exit_code(), 0);
    finishes(running);
}

#[test]
fn an_empty_tenure_url_counts_as_not_set() {
    let scene = Scene::new();
    let mut command = scene.command(env!("CARGO_BIN_EXE_cron-job"));
    command.env("TENURE_URL", "").env("TMPDIR", scene.path(""));
    let running = runs(command);
    assert!(
        scene.path("cron-job-locks.db").exists(),
        "the file of whoever names no store"
    );
    finishes(running);
}

#[test]
fn a_redis_may_be_its_lock_store() {
    scene::assert_speaks_redis(env!("CARGO_BIN_EXE_cron-job"), &[]);
}
