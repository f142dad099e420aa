//! Shared by both test binaries: a folder for each test, and functions that start processes, signal them and wait for
//! them.

#[path = "../../../../examples/process.rs"]
pub(crate) mod process;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use process::{Process, wait_for};

/// Fixture of one test: its folder. Each test binary adds methods of its own.
pub(crate) struct Fixture {
    pub(crate) folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        Fixture { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file in the fixture's folder, with these permissions.
    pub(crate) fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("the folder is ours");
        fs::write(&path, text).expect("the folder is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the file is ours");
        path
    }

    /// Waits until the file holds at least `count` process ids, and returns all of them.
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

/// Starts a program on a new terminal. Returns the terminal's other side, for keystrokes and output.
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

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// Exit code, or 128 plus the signal's number.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Process {
    /// Closes the process's input. Waits until the process has ended, and until no process holds its output open.
    pub(crate) fn finish(mut self) -> Done {
        self.close_stdin();
        let text = |line: String| line + "\n";
        Done {
            code: self.exit_code(),
            stdout: self.rest().into_iter().map(text).collect(),
            stderr: self.stderr().map(text).collect(),
        }
    }
}

/// Returns whether a process runs. A zombie does not.
pub(crate) fn alive(pid: i32) -> bool {
    !matches!(stat_field(pid, 0).as_deref(), Some("Z" | "X") | None)
}

/// Returns a field of `/proc/PID/stat`. Index 0 is the state, 1 the parent, 3 the session.
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
