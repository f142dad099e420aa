//! A scene for one test: a folder with a store, the built command, and ways to wait for what must happen.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::lines;
pub(crate) use crate::common::{LIMIT, Scene, alive, assert_dead, send, wait_for};

impl Scene {
    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// The command on the scene's store, in the scene's folder.
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

    /// Runs it to its end.
    pub(crate) fn call(&self, args: &[&str]) -> Done {
        Done::by(&mut self.command(args))
    }

    /// What `--json` says of a key.
    pub(crate) fn shown(&self, key: &str) -> Value {
        self.call(&["--json", "show", key]).objects().remove(0)
    }

    pub(crate) fn evict(&self, key: &str) {
        assert_eq!(self.call(&["evict", key, "--all"]).code, 0);
    }

    /// Puts a file of another program where the store should be, and gives its text.
    pub(crate) fn break_store(&self) -> String {
        let text = "this is no database, and long enough to be taken for one\n".repeat(99);
        self.write("locks.db", &text, 0o600);
        text
    }

    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process::of(self.command(args).spawn().expect("the command starts"))
    }

    /// `run KEY [options] -- sh -c SCRIPT`, started.
    pub(crate) fn shell(&self, options: &[&str], script: &str) -> Process {
        self.start(&[&["run"], options, &["--", "sh", "-c", script]].concat())
    }

    pub(crate) fn hold(&self, args: &[&str]) -> Hold {
        Hold::of(self.command(&[&["hold"], args].concat()))
    }

    /// A hold that has its lock.
    pub(crate) fn holding(&self, args: &[&str]) -> Hold {
        let hold = self.hold(args);
        hold.next("acquired");
        hold
    }

    /// `--json watch PREFIX`, started; its lines are read as those of a hold.
    pub(crate) fn watch(&self, prefix: &str) -> Hold {
        Hold::of(self.command(&["--json", "watch", prefix]))
    }

    /// The command as a user has it who names no store: at home in the scene's folder, with an empty environment
    /// but for `PATH`.
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

    /// Keeps the store busy, as a process does that is stopped while it writes, until the answer is dropped.
    pub(crate) fn block(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path("locks.db")).expect("the store is there");
        connection.busy_timeout(LIMIT).expect("a limit");
        connection
            .execute_batch("BEGIN IMMEDIATE")
            .expect("the right to write");
        connection
    }

    /// Waits until the file has that many lines, and gives them.
    pub(crate) fn lines(&self, name: &str, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        wait_for(&format!("{count} lines in {name}"), || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            lines = text.lines().map(str::to_owned).collect();
            lines.len() >= count && text.ends_with('\n')
        });
        lines
    }

    /// Whether somebody holds the key.
    pub(crate) fn is_busy(&self, key: &str) -> bool {
        match self.call(&["-q", "run", key, "-n", "--", "true"]).code {
            0 => false,
            124 => true,
            code => panic!("neither free nor busy but {code}"),
        }
    }
}

/// A command that ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// 128 and the signal's number if one ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// Runs a command to its end.
    pub(crate) fn by(command: &mut Command) -> Done {
        Done::of(command.output().expect("the command starts"))
    }

    pub(crate) fn of(output: Output) -> Done {
        use std::os::unix::process::ExitStatusExt;
        let by_signal = output.status.signal().map(|signal| 128 + signal);
        Done {
            code: output.status.code().or(by_signal).expect("it has ended"),
            stdout: String::from_utf8(output.stdout).expect("what we print is text"),
            stderr: String::from_utf8(output.stderr).expect("what we print is text"),
        }
    }

    /// The objects that it printed, one a line.
    pub(crate) fn objects(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("each line is JSON"))
            .collect()
    }
}

/// A command that runs, and is ended with the test.
pub(crate) struct Process(Option<Child>);

impl Process {
    pub(crate) fn of(child: Child) -> Process {
        Process(Some(child))
    }

    pub(crate) fn pid(&self) -> i32 {
        let child = self.0.as_ref().expect("it was not waited for");
        i32::try_from(child.id()).expect("process ids are small")
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        let child = self.0.as_mut().expect("it was not waited for");
        child.try_wait().expect("it is our child").is_some()
    }

    pub(crate) fn finish(mut self) -> Done {
        wait_for("the command's end", || self.has_ended());
        let child = self.0.take().expect("it was not waited for");
        Done::of(child.wait_with_output().expect("it is our child"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // With it dead, its guardian ends the rest.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A `tenure hold` and its events.
pub(crate) struct Hold {
    pub(crate) process: Process,
    stdin: Option<std::process::ChildStdin>,
    /// As they were printed, one a line.
    events: Receiver<String>,
}

impl Hold {
    fn of(mut command: Command) -> Hold {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the command starts");
        let stdin = child.stdin.take();
        let events = lines(child.stdout.take().expect("piped"));
        Hold {
            process: Process::of(child),
            stdin,
            events,
        }
    }

    /// The next event; it must be this one.
    pub(crate) fn next(&self, name: &str) -> Value {
        self.next_in("event", name)
    }

    /// The next change of a watch; it must be this one.
    pub(crate) fn change(&self, name: &str) -> Value {
        self.next_in("change", name)
    }

    fn next_in(&self, field: &str, name: &str) -> Value {
        let event = self.events.recv_timeout(LIMIT);
        let event = event.unwrap_or_else(|error| panic!("no {name:?}: {error}"));
        let event: Value = serde_json::from_str(&event).expect("each line is JSON");
        assert_eq!(event[field], name, "{event}");
        event
    }

    /// Asserts that its output ends without another event.
    pub(crate) fn says_nothing_more(&self) {
        assert_eq!(
            self.events.recv_timeout(LIMIT),
            Err(mpsc::RecvTimeoutError::Disconnected)
        );
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn release(mut self) {
        self.close_stdin();
        self.next("released");
        assert_eq!(self.finish().code, 0);
    }

    pub(crate) fn finish(self) -> Done {
        drop(self.stdin);
        self.process.finish()
    }
}
