//! What both test binaries need: a folder for one test, and ways to start processes, signal them and wait for them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Generous: reached only by a test that fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A scene for one test: its folder, and what each binary adds to it.
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

    /// A file in the scene's folder, with these permissions.
    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("the folder is ours");
        fs::write(&path, text).expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the file is ours");
        path
    }

    /// Waits until the file has this many words, all of them process ids.
    pub(crate) fn pids(&self, name: &str, count: usize) -> Vec<i32> {
        let mut pids = Vec::new();
        wait_for(&format!("{count} process ids in {name}"), || {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            let words = text.split_whitespace();
            pids = words.filter_map(|word| word.parse().ok()).collect();
            pids.len() >= count && text.ends_with('\n')
        });
        pids
    }

    pub(crate) fn wait_for_file(&self, name: &str) {
        wait_for(name, || self.path(name).exists());
    }
}

/// Starts a program on a terminal of its own, and gives the terminal's keys.
pub(crate) fn at_a_terminal(mut program: Command) -> (Child, File) {
    let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&keys).expect("it is ours");
    unlockpt(&keys).expect("it is ours");
    let name = ptsname(&keys, Vec::new()).expect("it has a name");
    let name = name.into_string().expect("plain text");
    let screen = || -> OwnedFd {
        let file = File::options().read(true).write(true).open(&name);
        file.expect("it opens").into()
    };
    program.stdin(screen()).stdout(screen()).stderr(screen());
    (program.spawn().expect("it starts"), File::from(keys))
}

/// A process whose outputs are read line by line, and which is ended with the test.
pub(crate) struct Process {
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Receiver<String>,
    pub(crate) stderr: Receiver<String>,
    /// The lines of stderr that were waited for.
    pub(crate) told: String,
}

impl Process {
    pub(crate) fn of(mut child: Child) -> Process {
        Process {
            stdin: child.stdin.take(),
            stdout: lines(child.stdout.take()),
            stderr: lines(child.stderr.take()),
            child,
            told: String::new(),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("process ids are small")
    }

    pub(crate) fn send(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    pub(crate) fn wait(&mut self) {
        wait_for("the process's end", || self.has_ended());
    }

    /// Waits for its end and for the end of its outputs: whoever holds one open lives on.
    pub(crate) fn finish(mut self) -> Done {
        self.close_stdin();
        self.wait();
        Done::of(Output {
            status: self.child.wait().expect("it is our child"),
            stdout: rest(&self.stdout).into(),
            stderr: (std::mem::take(&mut self.told) + &rest(&self.stderr)).into(),
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing of a failed test may live on: with the process dead, its guardian ends the rest.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// 128 and the signal's number if one ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Done {
        let by_signal = output.status.signal().map(|signal| 128 + signal);
        Done {
            code: output.status.code().or(by_signal).expect("it has ended"),
            stdout: String::from_utf8(output.stdout).expect("what is printed is text"),
            stderr: String::from_utf8(output.stderr).expect("what is printed is text"),
        }
    }
}

/// Reads lines on a thread, so that a test can wait for one with a limit.
fn lines(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = stream
            .into_iter()
            .flat_map(|stream| BufReader::new(stream).split(b'\n'));
        for line in lines.map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn rest(lines: &Receiver<String>) -> String {
    let mut text = String::new();
    loop {
        match lines.recv_timeout(LIMIT) {
            Ok(line) => text += &format!("{line}\n"),
            Err(RecvTimeoutError::Disconnected) => return text,
            Err(RecvTimeoutError::Timeout) => panic!("a process holds the output open; so far {text:?}"),
        }
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
    !matches!(stat_field(pid, 0).as_deref(), Some("Z" | "X") | None)
}

/// A field of `/proc/PID/stat`, counted from the state: 1 is the parent, 3 the session.
pub(crate) fn stat_field(pid: i32, index: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(index).map(str::to_owned)
}

pub(crate) fn assert_dead(pids: &[i32]) {
    let living: Vec<&i32> = pids.iter().filter(|&&pid| alive(pid)).collect();
    assert!(living.is_empty(), "{living:?} of {pids:?} live on");
}

pub(crate) fn send(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("not zero");
    kill_process(pid, signal).expect("the process exists");
}
