//! A scene for one test: a folder, a probe with its command, and ways to wait for what must happen.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use crate::common::lines;
pub(crate) use crate::common::{LIMIT, Scene, alive, assert_dead, send, stat_field, wait_for};
use crate::probe;

/// A deadline that no test reaches.
pub(crate) const FAR: [&str; 2] = ["term=600000", "kill=600000"];

impl Scene {
    /// A probe command, not yet started: `words` before the `--`, `argv` after it, in the scene's folder.
    pub(crate) fn command(&self, words: &[&str], argv: &[&str]) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("our own path"));
        command
            .arg0(probe::NAME)
            .args(words)
            .arg("--")
            .args(argv)
            .current_dir(self.folder.path());
        command
    }

    pub(crate) fn start(&self, words: &[&str], argv: &[&str]) -> Run {
        Run::of(self.command(words, argv))
    }

    pub(crate) fn shell(&self, words: &[&str], script: &str) -> Run {
        self.start(words, &["sh", "-c", script])
    }

    /// A probe that was started by this Python program, which is given the probe's path and arguments.
    pub(crate) fn called_by_python(&self, program: &str, argv: &[&str]) -> Run {
        let probe = std::env::current_exe().expect("our own path");
        let mut python = Command::new("python3");
        python.args(["-c", program]).arg(probe).arg(probe::NAME).args(FAR);
        python.arg("--").args(argv).current_dir(self.folder.path());
        Run::of(python)
    }
}

/// A running probe.
pub(crate) struct Run {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    stderr: Receiver<String>,
    stdout: Receiver<String>,
    told: Vec<String>,
}

/// What a probe left.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) told: String,
}

impl Run {
    pub(crate) fn of(mut command: Command) -> Run {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the probe starts");
        let stdin = child.stdin.take();
        let stdout = lines(child.stdout.take().expect("piped"));
        let stderr = lines(child.stderr.take().expect("piped"));
        Run {
            child,
            stdin,
            stderr,
            stdout,
            told: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("process ids are small")
    }

    /// Waits for a line on stderr that begins so, and gives its last word as a number, if it is one.
    pub(crate) fn told(&mut self, start: &str) -> i32 {
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(line) = self.stderr.recv_timeout(left) else {
                panic!("{start:?} was never told, but {:?}", self.told);
            };
            let found = line.starts_with(start);
            let number = line.rsplit(' ').next().and_then(|word| word.parse().ok());
            self.told.push(line);
            if found {
                return number.unwrap_or(0);
            }
        }
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the probe's end", || {
            status = self.child.try_wait().expect("the probe is our child");
            status.is_some()
        });
        status.expect("it was seen")
    }

    /// Waits for the probe's end and for the end of its outputs: whoever holds one open lives on.
    pub(crate) fn finish(mut self) -> Outcome {
        drop(self.stdin.take());
        let status = self.wait();
        let stdout = rest(&self.stdout);
        let mut told = std::mem::take(&mut self.told).join("\n");
        told.push_str(&rest(&self.stderr));
        Outcome {
            code: status.code().or(status.signal().map(|signal| -signal)),
            stdout,
            told,
        }
    }
}

impl Outcome {
    /// Asserts the exit code, and what was told of the command's end.
    pub(crate) fn assert_ended(&self, code: i32, stopped_by: &str) {
        assert_eq!(self.code, Some(code), "{}", self.told);
        let words = format!("stopped_by: {stopped_by}");
        assert!(self.told.contains(&words), "{}", self.told);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Nothing of a failed test may live on: with the probe dead, its guardian ends the rest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(lines: &Receiver<String>) -> String {
    let end = Instant::now() + LIMIT;
    let mut text = String::new();
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                text.push_str(&line);
                text.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => return text,
            Err(RecvTimeoutError::Timeout) => {
                panic!("someone holds the probe's output open; so far {text:?}")
            }
        }
    }
}

/// Lists functions as tests under their own names.
#[macro_export]
macro_rules! trials {
    ($($name:ident),* $(,)?) => {
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            vec![$(libtest_mimic::Trial::test(stringify!($name), || {
                $name();
                Ok(())
            })),*]
        }
    };
}
