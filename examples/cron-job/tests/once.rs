//! Two processes start at once: one runs the job, and the other finds the lock busy.
#![cfg(unix)]

#[path = "../../fixture.rs"]
mod fixture;

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use fixture::{Fixture, Process, tenure_command};
use rustix::process::Signal;

/// Starts two processes at once. Asserts that one runs and the other prints `busy`. Returns both, the running one
/// first.
fn one_runs(start: impl Fn() -> Command, busy: Option<&str>) -> (Process, Process) {
    // The job ends only when the test closes its stdin, so the other process finds the lock busy.
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
fn one_of_two_concurrent_processes_runs_the_job() {
    let fixture = Fixture::new();
    let start = || fixture.command(env!("CARGO_BIN_EXE_cron-job"));
    let (running, mut busy) = one_runs(start, Some("busy: the report runs elsewhere"));
    assert_eq!((busy.line(), busy.exit_code()), (None, 0));
    finishes(running);

    // The first process has released the lock.
    finishes(runs(start()));
}

#[test]
fn a_job_that_is_asked_to_stop_fails_and_releases_its_lock() {
    let fixture = Fixture::new();
    let start = || fixture.command(env!("CARGO_BIN_EXE_cron-job"));
    for signal in [Signal::INT, Signal::TERM] {
        let mut running = runs(start());
        running.send(signal);
        assert_eq!(running.exit_code(), 1);
    }
    // The stopped processes have released the lock.
    finishes(runs(start()));
}

#[test]
fn the_crontab_line_runs_the_job_once() {
    let fixture = Fixture::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crontab = fs::read_to_string(folder.join("crontab")).unwrap();
    let line = crontab.lines().find(|line| !line.starts_with('#')).unwrap();
    let job = line.splitn(6, char::is_whitespace).last().unwrap();

    let tenure = tenure_command();
    let mut path = OsString::from(tenure.parent().unwrap());
    path.push(":/usr/bin:/bin");
    // As under cron: an empty environment, a shell, and the store's URL from a file.
    let config = fixture.path("home/.config/tenure");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("url"), fixture.url()).unwrap();
    let start = || {
        let mut command = Command::new("/bin/sh");
        // The test reads stderr too, because cron would mail it.
        command.args(["-c", &format!("exec 2>&1; {job}")]);
        command.current_dir(folder).env_clear();
        command.env("PATH", &path).env("HOME", fixture.path("home"));
        command
    };
    // The process that finds the lock busy prints nothing for cron to mail.
    let (running, mut busy) = one_runs(start, None);
    assert_eq!(busy.exit_code(), 0);
    finishes(running);
}

#[test]
fn an_empty_tenure_url_counts_as_not_set() {
    let fixture = Fixture::new();
    let mut command = fixture.command(env!("CARGO_BIN_EXE_cron-job"));
    command.env("TENURE_URL", "").env("TMPDIR", fixture.path(""));
    let running = runs(command);
    assert!(
        fixture.path("cron-job-locks.db").exists(),
        "the default lock file"
    );
    finishes(running);
}

#[test]
fn redis_works_as_the_lock_store() {
    fixture::assert_speaks_redis(env!("CARGO_BIN_EXE_cron-job"), &[]);
}

#[test]
fn help_shows_the_usage() {
    fixture::assert_shows_its_usage(env!("CARGO_BIN_EXE_cron-job"));
}
