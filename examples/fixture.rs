//! What the tests of the examples share: a temporary folder with a lock store, real processes, the `tenure` command.
//! Each test takes this file as a module by its path.
#![allow(dead_code, reason = "each test uses its own part of it")]

#[path = "process.rs"]
mod process;

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use tempfile::TempDir;

#[allow(unused_imports, reason = "each test uses its own part of it")]
pub(crate) use process::{LIMIT, Process, wait_for};

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
