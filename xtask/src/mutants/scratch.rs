//! A copy of the workspace in which bugs are planted. Its build results are kept for the next run.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::files::below;
use crate::process::{DEFAULT_SIGNALS, Failure, cargo_program, root};

/// Time limits in seconds: for a build, and for the tests of one planted bug. A test that hangs counts as failed.
const LIMITS: [&str; 2] = ["3600", "180"];

#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) tree: PathBuf,
    folder: PathBuf,
    /// Locked, so that a second run fails at once.
    _lock: File,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    /// Number of tests that passed; none failed.
    Passed(usize),
    Failed,
    /// The tests were killed at the time limit.
    TimedOut,
    DoesNotCompile,
}

impl Scratch {
    /// Copies the workspace. Does not write files that are equal already, so cargo rebuilds only what has changed.
    pub(crate) fn copy() -> Result<Self, Failure> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let folder = target.join("mutants");
        let tree = folder.join("tree");
        fs::create_dir_all(&tree)?;
        let lock = File::create(folder.join("lock"))?;
        lock.try_lock()
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        mirror(&root(), &tree)?;
        Ok(Self {
            tree,
            folder,
            _lock: lock,
        })
    }

    /// Builds the test binary and runs the test.
    pub(crate) fn test(&self, test: &[String; 3]) -> Result<Outcome, Failure> {
        // Output goes to a file, because a process that survives the tests would keep a pipe open.
        let path = self.folder.join("output");
        let run = |limit, args: &[&str], errors| -> io::Result<_> {
            let mut command = self.cargo_test(test, limit);
            command.args(args).stderr(errors).stdout(File::create(&path)?);
            let code = command.status()?.code();
            Ok((code, String::from_utf8_lossy(&fs::read(&path)?).into_owned()))
        };
        let (built, _) = run(LIMITS[0], &["--no-run", "--quiet"], Stdio::inherit())?;
        if built != Some(0) {
            return Ok(Outcome::DoesNotCompile);
        }
        let (code, output) = run(LIMITS[1], &["--", &test[2]], Stdio::null())?;
        Ok(match code {
            Some(0) => Outcome::Passed(output.matches(" ... ok\n").count()),
            // 137: `timeout` killed the tests. `None`: `timeout` was killed by its own signal.
            None | Some(137) => Outcome::TimedOut,
            Some(_) => Outcome::Failed,
        })
    }

    fn cargo_test(&self, [package, binary, _]: &[String; 3], limit: &str) -> Command {
        let mut command = Command::new("env");
        // Warnings are ignored. Without line tables the build links faster; without backtraces a test fails faster.
        command.args([DEFAULT_SIGNALS, "RUSTFLAGS=-Awarnings"]);
        command.args(["CARGO_PROFILE_DEV_DEBUG=0", "RUST_BACKTRACE=0"]);
        command.args(["timeout", "--signal=KILL", limit]);
        command.arg(cargo_program());
        command.args(["test", "--all-features", "-p", package]);
        match &**binary {
            "lib" => command.arg("--lib"),
            binary => command.args(["--test", binary]),
        };
        command.env("CARGO_TARGET_DIR", self.folder.join("target"));
        command.current_dir(&self.tree).stdin(Stdio::null());
        command
    }
}

fn mirror(from: &Path, to: &Path) -> io::Result<()> {
    let wanted = below(from)?;
    for name in &wanted {
        let (file, copy) = (from.join(name), to.join(name));
        if fs::read(&copy).ok() != Some(fs::read(&file)?) {
            fs::create_dir_all(copy.parent().unwrap_or(to))?;
            fs::copy(&file, &copy)?;
        }
    }
    for name in below(to)?.difference(&wanted) {
        let copy = to.join(name);
        fs::remove_file(&copy)?;
        // Also removes folders that are now empty, because cargo expects a package in each folder of `crates`.
        let mut folders = copy.ancestors().skip(1);
        while folders
            .next()
            .is_some_and(|folder| fs::remove_dir(folder).is_ok())
        {}
    }
    Ok(())
}
