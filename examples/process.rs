//! A real process whose lines are awaited. Each program and each test takes this file as a module by its path.
#![allow(dead_code, reason = "each uses its own part of it")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Generous: reached only by a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A process whose lines on stdout can be awaited. It is killed with this value.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Process {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let (send, lines) = mpsc::channel();
        thread::spawn(move || {
            stdout
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Process {
            stdin: child.stdin.take(),
            child,
            lines,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its next line; `None` when it has ended, or closed its stdout.
    pub(crate) fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line within {LIMIT:?}"),
        }
    }

    /// The first line to come that begins so.
    pub(crate) fn line_with(&self, start: &str) -> String {
        let mut lines = std::iter::from_fn(|| self.line());
        let line = lines.find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("it ended without a line that begins with {start:?}"))
    }

    /// All lines that are left, once it has ended.
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

    /// Its exit code, once it has ended; 128 and the signal's number if one ended it.
    pub(crate) fn exit_code(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let mut ended = None;
        wait_for("the process's end", || {
            ended = self.child.try_wait().expect("it is our child");
            ended.is_some()
        });
        let ended = ended.expect("it has ended");
        ended
            .code()
            .or(ended.signal().map(|signal| 128 + signal))
            .expect("a code or a signal")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Also ends what is stopped; one that has ended is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until it has happened.
pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        // sleep: the pace of a poll that has a deadline.
        thread::sleep(Duration::from_millis(5));
    }
}
