//! A process whose output lines a test can await. Programs and tests include this file as a module by its path, as do
//! the tests of the `tenure` command.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]
#![allow(dead_code, reason = "each uses its own part of it")]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A time limit that only a failing test reaches.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A process whose output lines can be awaited. Dropping this kills it.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Process {
    /// Starts a process with pipes as stdin and stdout. Its stderr is set by `command`.
    pub(crate) fn start(mut command: Command) -> Process {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Process::of(command.spawn().expect("the program starts"))
    }

    /// Takes over a process that runs, and reads its pipes.
    pub(crate) fn of(mut child: Child) -> Process {
        Process {
            stdin: child.stdin.take(),
            stdout: lines(child.stdout.take()),
            stderr: lines(child.stderr.take()),
            child,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of stdout, or `None` when the process has ended or closed its stdout.
    pub(crate) fn line(&self) -> Option<String> {
        next(&self.stdout)
    }

    /// The remaining lines of stderr, if it is a pipe.
    pub(crate) fn stderr(&self) -> impl Iterator<Item = String> {
        std::iter::from_fn(|| next(&self.stderr))
    }

    /// The next line of stdout that begins with `start`. Drops earlier lines.
    pub(crate) fn line_with(&self, start: &str) -> String {
        let mut lines = std::iter::from_fn(|| self.line());
        let line = lines.find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("it ended without a line that begins with {start:?}"))
    }

    /// Waits until stdout ends, and returns the remaining lines.
    pub(crate) fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.line()).collect()
    }

    pub(crate) fn stdin(&mut self) -> &mut ChildStdin {
        self.stdin.as_mut().expect("stdin is open")
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Waits for the end of the process. Returns its [`exit_code`].
    pub(crate) fn exit_code(&mut self) -> i32 {
        wait_for("the process's end", || self.has_ended());
        exit_code(self.child.wait().expect("it is our child"))
    }
}

/// Exit code of an ended process, or 128 plus the signal's number if a signal ended it.
pub(crate) fn exit_code(ended: ExitStatus) -> i32 {
    let by_signal = ended.signal().map(|signal| 128 + signal);
    ended.code().or(by_signal).expect("a code or a signal")
}

fn lines(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, lines) = mpsc::channel();
    if let Some(pipe) = pipe {
        thread::spawn(move || {
            let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
            lines.try_for_each(|line| send.send(line))
        });
    }
    lines
}

fn next(lines: &Receiver<String>) -> Option<String> {
    match lines.recv_timeout(LIMIT) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("no line within {LIMIT:?}"),
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. `kill` fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `happened` returns true; panics after [`LIMIT`].
pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        // sleep: pause between two checks. The wait ends after `LIMIT`.
        thread::sleep(Duration::from_millis(5));
    }
}
