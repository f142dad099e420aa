//! A scene for one test: a folder, a probe with its command, and ways to wait for what must happen.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::probe;

/// Generous: reached only by a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A deadline that no test reaches.
pub(crate) const FAR: [&str; 2] = ["term=600000", "kill=600000"];

pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

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
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, words: &[&str], argv: &[&str]) -> Run {
        Run::of(self.command(words, argv))
    }

    pub(crate) fn shell(&self, words: &[&str], script: &str) -> Run {
        self.start(words, &["sh", "-c", script])
    }

    /// Waits until the file has this many words, all of them process ids.
    pub(crate) fn pids(&self, name: &str, count: usize) -> Vec<i32> {
        let read = || -> Option<Vec<i32>> {
            let text = fs::read_to_string(self.path(name)).ok()?;
            let pids: Vec<i32> = text
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect();
            (pids.len() >= count && text.ends_with('\n')).then_some(pids)
        };
        wait_for(&format!("{count} process ids in {name}"), || read().is_some());
        read().expect("it was there")
    }

    pub(crate) fn wait_for_file(&self, name: &str) {
        wait_for(name, || self.path(name).exists());
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
            let line = match self
                .stderr
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => line,
                Err(_) => panic!("{start:?} was never told, but {:?}", self.told),
            };
            let found = line.starts_with(start);
            let number = line
                .rsplit(' ')
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0);
            self.told.push(line);
            if found {
                return number;
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

impl Drop for Run {
    fn drop(&mut self) {
        // Nothing of a failed test may live on: with the probe dead, its guardian ends the rest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
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

pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        // sleep: between two looks, within the deadline above.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process runs; a zombie does not.
pub(crate) fn alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

pub(crate) fn send(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("not zero");
    rustix::process::kill_process(pid, signal).expect("the process exists");
}

pub(crate) fn assert_dead(pids: &[i32]) {
    let living: Vec<&i32> = pids.iter().filter(|&&pid| alive(pid)).collect();
    assert!(living.is_empty(), "{living:?} of {pids:?} live on");
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
