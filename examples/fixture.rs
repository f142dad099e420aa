//! Shared by the tests of the examples: a temporary folder with a lock store, real processes, and the `tenure` command.
//! Each test includes this file as a module by its path.
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

/// A temporary folder with its own lock store.
pub(crate) struct Fixture(TempDir);

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture(tempfile::tempdir().expect("a folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    /// A command that runs in the folder and uses the lock store. Its stderr is printed if the test fails.
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

impl Drop for Fixture {
    fn drop(&mut self) {
        if thread::panicking() {
            print!("{}", fs::read_to_string(self.path("stderr")).unwrap_or_default());
        }
    }
}

/// Asserts that a program accepts a Redis URL: if no server is there, its error names the server.
pub(crate) fn assert_speaks_redis(program: &str, args: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    command.current_dir(folder.path()).args(args).stdin(Stdio::null());
    // No server listens at port 1.
    let output = command.env("TENURE_URL", "redis://127.0.0.1:1").output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("Redis at 127.0.0.1:1 cannot be reached"), "{said}");
    assert_is_one_line_in_words(&said);
}

/// Asserts that `--help` and `-h` print how a program is called, and nothing else.
pub(crate) fn assert_shows_its_usage(program: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    for flag in ["--help", "-h"] {
        let mut command = Command::new(program);
        command.current_dir(folder.path()).arg(flag).stdin(Stdio::null());
        let output = command.output().expect("the program starts");
        let printed = String::from_utf8_lossy(&output.stdout);
        let name = Path::new(program).file_name().expect("it is a file");
        let begin = format!("usage: {}", name.display());
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert!(printed.starts_with(&begin), "{printed}");
    }
}

/// Asserts that a failed program printed one line for users, not the debug format of an error.
pub(crate) fn assert_is_one_line_in_words(said: &str) {
    let begins = said.starts_with("error: ") || said.starts_with("not started: ");
    assert!(begins && said.lines().count() == 1, "{said}");
    assert!(!said.contains(['{', '"']), "{said}");
}

/// The path of the built `tenure` command, next to the tests. Builds it if it is missing, as when only this package is
/// tested.
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
