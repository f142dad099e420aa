//! Fixture of one test: a folder with a store, the built command, and functions that wait for an event.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use serde_json::Value;

use crate::common::process::exit_code;
pub(crate) use crate::common::process::{LIMIT, Process, wait_for};
pub(crate) use crate::common::{Done, Fixture, alive, assert_dead, send};

impl Fixture {
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// Prepares a call of `tenure` on the fixture's store, in the fixture's folder.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.arg("--url").arg(self.url()).args(args);
        command.current_dir(self.folder.path()).env_remove("TENURE_URL");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn call(&self, args: &[&str]) -> Done {
        Done::by(&mut self.command(args))
    }

    /// Returns what `--json show` prints for a key.
    pub(crate) fn shown(&self, key: &str) -> Value {
        self.call(&["--json", "show", key]).objects().remove(0)
    }

    pub(crate) fn evict(&self, key: &str) {
        assert_eq!(self.call(&["evict", key, "--all"]).code, 0);
    }

    /// Overwrites the store's file with text that is no database, and returns the text.
    pub(crate) fn break_store(&self) -> String {
        let text = "this is no database, and long enough to be taken for one\n".repeat(99);
        self.write("locks.db", &text, 0o600);
        text
    }

    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process::of(self.command(args).spawn().expect("the command starts"))
    }

    /// Starts `run [options] -- sh -c SCRIPT`. The options include the key.
    pub(crate) fn shell(&self, options: &[&str], script: &str) -> Process {
        self.start(&[&["run"], options, &["--", "sh", "-c", script]].concat())
    }

    pub(crate) fn hold(&self, args: &[&str]) -> Process {
        Process::start(self.command(&[&["hold"], args].concat()))
    }

    /// Starts `tenure hold`, and waits until it has acquired its lock.
    pub(crate) fn holding(&self, args: &[&str]) -> Process {
        let hold = self.hold(args);
        hold.next("acquired");
        hold
    }

    pub(crate) fn watch(&self, prefix: &str) -> Process {
        self.start(&["--json", "watch", prefix])
    }

    /// Prepares a call of `tenure` without a named store: the home directory is in the fixture's folder, and the
    /// environment holds only `HOME` and `PATH`.
    pub(crate) fn at_home(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(args).env_clear().env("HOME", self.path("home"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn call_at_home(&self, args: &[&str], env: &[(&str, &str)]) -> Done {
        Done::by(self.at_home(args).envs(env.iter().copied()))
    }

    /// Locks the store's file for writing, as a process does that is stopped while it writes. Dropping the returned
    /// connection unlocks the file.
    pub(crate) fn block(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path("locks.db")).expect("the store is there");
        connection.busy_timeout(LIMIT).expect("a limit");
        connection
            .execute_batch("BEGIN IMMEDIATE")
            .expect("the right to write");
        connection
    }

    /// Waits until the file has at least `count` lines, and returns all of them.
    pub(crate) fn lines(&self, name: &str, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        wait_for(&format!("{count} lines in {name}"), || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            lines = text.lines().map(str::to_owned).collect();
            lines.len() >= count && text.ends_with('\n')
        });
        lines
    }

    pub(crate) fn is_busy(&self, key: &str) -> bool {
        match self.call(&["-q", "run", key, "-n", "--", "true"]).code {
            0 => false,
            124 => true,
            code => panic!("neither free nor busy but {code}"),
        }
    }
}

impl Done {
    /// Runs a command to its end.
    pub(crate) fn by(command: &mut Command) -> Done {
        let output = command.output().expect("the command starts");
        let text = |bytes| String::from_utf8(bytes).expect("what we print is text");
        Done {
            code: exit_code(output.status),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Returns the JSON objects that the process printed, one per line.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("each line is JSON"))
            .collect()
    }
}

/// A small pipe: the end to read, and the end to write.
pub(crate) fn small_pipe() -> (File, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    fcntl_setpipe_size(&writer, 4_096).expect("one page");
    (File::from(reader), writer)
}

/// Writes to a pipe until it is full.
pub(crate) fn fill(writer: &OwnedFd) {
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    // Opened once more, because the process that has the pipe expects that its own writes block.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut again = File::options()
        .write(true)
        .custom_flags(nonblocking)
        .open(path)
        .expect("the pipe is ours");
    while again.write_all(b"\n").is_ok() {}
}

/// A running `tenure hold` or `tenure watch`, and its output.
impl Process {
    /// Reads the next event, and asserts its name. Skips the renewals of a hold that lasts for longer.
    pub(crate) fn next(&self, name: &str) -> Value {
        loop {
            let event = self.object(name);
            if event["event"] != "renewed" || name == "renewed" {
                assert_eq!(event["event"], name, "{event}");
                return event;
            }
        }
    }

    /// Reads the next change of a watch, and asserts its name.
    pub(crate) fn change(&self, name: &str) -> Value {
        let change = self.object(name);
        assert_eq!(change["change"], name, "{change}");
        change
    }

    /// Reads the next line.
    fn object(&self, name: &str) -> Value {
        let line = self.line().unwrap_or_else(|| panic!("it ended without {name:?}"));
        serde_json::from_str(&line).expect("each line is JSON")
    }

    /// Waits until the process ends. Asserts that it printed no further event, and exited with `code`.
    pub(crate) fn ends(self, code: i32) -> Done {
        let done = self.finish();
        let last = done.stdout.lines().find(|line| !line.contains(r#""renewed""#));
        assert_eq!((done.code, last), (code, None), "{done:?}");
        done
    }

    pub(crate) fn release(mut self) {
        self.close_stdin();
        self.next("released");
        self.ends(0);
    }
}
