//! What the tests of the examples share: a temporary folder, and real processes whose lines are awaited.
//! Not here: any example's own scene. Each test takes this file as a module by its path.
#![allow(dead_code, reason = "each test uses its own part of it")]

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Generous: reached only by a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A folder with a lock store that nobody else uses.
pub(crate) struct Scene(TempDir);

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The URL of its lock store.
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// A program in the scene's folder, on its store. What it writes to stderr is shown if the test fails.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let stderr = File::options()
            .create(true)
            .append(true)
            .open(self.path("stderr"));
        let mut command = Command::new(program.as_ref());
        command
            .current_dir(self.0.path())
            .env("TENURE_URL", self.url())
            .stderr(stderr.expect("the folder is ours"));
        command
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if thread::panicking() {
            print!("{}", fs::read_to_string(self.path("stderr")).unwrap_or_default());
        }
    }
}

/// A process whose lines on stdout can be awaited. It is killed with the test.
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
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            let line = self.line();
            let line = line.unwrap_or_else(|| panic!("it ended without a line that begins with {start:?}"));
            if line.starts_with(start) {
                return line;
            }
        }
        panic!("no line within {LIMIT:?} that begins with {start:?}");
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

    #[cfg(unix)]
    pub(crate) fn send(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.pid())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("process ids are small"), signal).expect("it lives");
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

/// That a program with these arguments takes a Redis as its lock store, and says so of one that is not there.
pub(crate) fn assert_speaks_redis(program: &str, args: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    command.current_dir(folder.path()).args(args).stdin(Stdio::null());
    // Nobody listens at this port.
    let output = command.env("TENURE_URL", "redis://127.0.0.1:1").output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("Redis at 127.0.0.1:1 cannot be reached"), "{said}");
    assert_is_one_line_in_words(&said);
}

/// That a program which failed said so in one line, and not as Rust shows an error to its programmer.
pub(crate) fn assert_is_one_line_in_words(said: &str) {
    let begins = said.starts_with("error: ") || said.starts_with("not started: ");
    assert!(begins && said.lines().count() == 1, "{said}");
    assert!(!said.contains(['{', '"']), "{said}");
}

/// The built `tenure` command, which lies beside the tests; built now if only this package is tested.
pub(crate) fn tenure_command() -> PathBuf {
    let test = env::current_exe().expect("a test knows its file");
    let profile = test
        .ancestors()
        .nth(2)
        .expect("a test lies in target/PROFILE/deps");
    let tenure = profile.join("tenure");
    if !tenure.exists() {
        let cargo = env::var_os("CARGO").expect("cargo runs the tests");
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--package",
            "tenure-cli",
            "--bin",
            "tenure",
            "--target-dir",
        ]);
        build.arg(profile.parent().expect("target/PROFILE lies in target"));
        assert!(build.status().expect("cargo starts").success());
    }
    assert!(
        tenure.exists(),
        "no {}: build it with this profile",
        tenure.display()
    );
    tenure
}
