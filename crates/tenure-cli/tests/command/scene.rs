//! A scene for one test: a folder with a store, the built command, and ways to wait for what must happen.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Generous: reached only by a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A folder with a store that nobody else uses.
pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        Scene { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

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
        Done::of(self.command(args).output().expect("the command starts"))
    }

    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process(Some(self.command(args).spawn().expect("the command starts")))
    }

    /// `run KEY [options] -- sh -c SCRIPT`, started.
    pub(crate) fn shell(&self, options: &[&str], script: &str) -> Process {
        self.start(&[&["run"], options, &["--", "sh", "-c", script]].concat())
    }

    pub(crate) fn hold(&self, args: &[&str]) -> Hold {
        Hold::of(self.command(&[&["hold"], args].concat()))
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

    /// Keeps the store busy, as a process does that is stopped while it writes, until the answer is dropped.
    pub(crate) fn block(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.path("locks.db")).expect("the store is there");
        connection.busy_timeout(LIMIT).expect("a limit");
        connection
            .execute_batch("BEGIN IMMEDIATE")
            .expect("the right to write");
        connection
    }

    /// A file in the scene's folder, with these permissions.
    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("the folder is ours");
        fs::write(&path, text).expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the file is ours");
        path
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

    /// Waits until the file has this many words, all of them process ids.
    pub(crate) fn pids(&self, name: &str, count: usize) -> Vec<i32> {
        let mut pids = Vec::new();
        wait_for(&format!("{count} process ids in {name}"), || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            pids = text
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect();
            pids.len() >= count && text.ends_with('\n')
        });
        pids
    }

    pub(crate) fn wait_for_file(&self, name: &str) {
        wait_for(name, || self.path(name).exists());
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
    events: Receiver<Value>,
}

impl Hold {
    fn of(mut command: Command) -> Hold {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the command starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, events) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("each line is JSON");
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Hold {
            process: Process(Some(child)),
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

pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !happened() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        // sleep: the pace of a poll that has a deadline.
        thread::sleep(Duration::from_millis(2));
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

pub(crate) fn assert_dead(pids: &[i32]) {
    let living: Vec<&i32> = pids.iter().filter(|&&pid| alive(pid)).collect();
    assert!(living.is_empty(), "{living:?} of {pids:?} live on");
}

pub(crate) fn send(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("not zero");
    kill_process(pid, signal).expect("the process exists");
}
