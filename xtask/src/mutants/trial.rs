//! Running tests in a copy: whether they compile, which pass, which fail, and who has to be stopped.
//! Not here: what the outcome means.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::mutant::Target;
use super::work_copy::WorkCopy;
use crate::process::{Failure, show};

/// How often a test run is looked at.
const PACE: Duration = Duration::from_millis(20);

/// How many lines of a failed build are shown.
const SHOWN_LINES: usize = 30;

/// What the tests of one run did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) passed: Vec<String>,
    pub(crate) failed: Vec<String>,
    pub(crate) ended: Ended,
}

/// How a run of tests ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All tests ran, and all passed.
    #[default]
    Green,
    Red,
    /// It was stopped at its time limit.
    AtItsLimit,
}

/// Builds a test binary; the compiler's words if it cannot be built.
pub(crate) fn build(copy: &WorkCopy, package: &str, target: Target) -> Result<Result<(), String>, Failure> {
    let mut command = tests_of(copy, package, target);
    command.args(["--no-run", "--quiet"]);
    let (status, said) = run_within(copy, command, None)?;
    if status.is_some_and(|status| status.success()) {
        return Ok(Ok(()));
    }
    let errors = said.lines().skip_while(|line| !line.starts_with("error"));
    Ok(Err(errors.take(SHOWN_LINES).collect::<Vec<_>>().join("\n")))
}

/// Runs the tests whose names have one of `names` in them.
pub(crate) fn run(
    copy: &WorkCopy,
    package: &str,
    target: Target,
    names: &[&str],
    limit: Duration,
) -> Result<Ran, Failure> {
    let mut command = tests_of(copy, package, target);
    command.arg("--").args(names);
    let (status, said) = run_within(copy, command, Some(limit))?;
    let mut ran = read(&said);
    // In the order of their names, and not in that in which they happened to end.
    ran.failed.sort_unstable();
    ran.ended = match status {
        Some(status) if status.success() => Ended::Green,
        Some(_) => Ended::Red,
        None => Ended::AtItsLimit,
    };
    Ok(ran)
}

fn tests_of(copy: &WorkCopy, package: &str, target: Target) -> Command {
    let mut command = copy.cargo();
    command
        .args(["test", "--all-features", "--package", package])
        .args(target.args());
    command
}

/// Runs a command in a process group of its own: how it ended, or `None` if it was killed at the limit, and what it
/// said. It speaks into a file: a pipe would be open for as long as anybody it started lives.
fn run_within(
    copy: &WorkCopy,
    mut command: Command,
    limit: Option<Duration>,
) -> Result<(Option<ExitStatus>, String), Failure> {
    let shown = show(&command);
    let path = copy.target.with_file_name("output.txt");
    let mut ran = || -> io::Result<(Option<ExitStatus>, String)> {
        let out = File::create(&path)?;
        command
            .stdin(Stdio::null())
            .stderr(out.try_clone()?)
            .stdout(out)
            .process_group(0);
        let status = wait(command.spawn()?, limit)?;
        Ok((status, String::from_utf8_lossy(&fs::read(&path)?).into_owned()))
    };
    ran().map_err(|error| Failure::new(format!("`{shown}` cannot be run: {error}")))
}

fn wait(mut child: Child, limit: Option<Duration>) -> io::Result<Option<ExitStatus>> {
    let Some(limit) = limit else {
        return child.wait().map(Some);
    };
    let until = Instant::now() + limit;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(PACE);
    }
    // The leader is not reaped yet, so its group is still ours to kill.
    if let Ok(pid) = i32::try_from(child.id())
        && let Some(group) = Pid::from_raw(pid)
    {
        kill_process_group(group, Signal::KILL)?;
    }
    child.wait()?;
    Ok(None)
}

/// Reads `test some::name ... ok` and `… FAILED`.
fn read(said: &str) -> Ran {
    let mut ran = Ran::default();
    for line in said.lines() {
        let Some((name, outcome)) = line
            .strip_prefix("test ")
            .and_then(|line| line.split_once(" ... "))
        else {
            continue;
        };
        let name = name.trim_end().trim_end_matches(" - should panic").to_owned();
        match outcome {
            "ok" => ran.passed.push(name),
            "FAILED" => ran.failed.push(name),
            _ => {}
        }
    }
    ran
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_and_failed_is_read_from_the_output() {
        let said = "\nrunning 3 tests\ntest a::b   ... ok\ntest c - should panic ... ok\ntest d ... FAILED\n\
            test e has been running for over 60 seconds\ntest result: FAILED. 2 passed; 1 failed\n";
        let ran = read(said);
        assert_eq!(ran.passed, ["a::b", "c"]);
        assert_eq!(ran.failed, ["d"]);
    }

    #[test]
    fn what_does_not_end_is_killed_at_its_limit_with_all_that_it_started() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & wait"]).process_group(0);
        let began = Instant::now();
        let status = wait(command.spawn().unwrap(), Some(Duration::from_millis(50))).unwrap();
        assert_eq!(status, None);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
