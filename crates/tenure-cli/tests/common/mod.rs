//! What both test binaries need: a folder for one test, and ways to start processes, signal them and wait for them.

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

/// A process that ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// 128 and the signal's number if one ended it.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Process {
    /// Waits until the process has ended, and every process that holds one of its outputs open.
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
