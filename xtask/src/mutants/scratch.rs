//! A copy of the work tree in which mutants are planted; its build results stay for the next run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::{Failure, cargo, root};

/// Seconds that a build, or the tests of one mutant, may take. A test that hangs has noticed its mutant.
const LIMITS: [&str; 2] = ["3600", "180"];

/// A copy of the work tree, with a target folder of its own.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) tree: PathBuf,
    folder: PathBuf,
    /// Locked while this copy is in use.
    _lock: File,
}

/// What a test did.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// This many tests passed, and none failed.
    Passed(usize),
    Failed,
    /// It was killed at its time limit.
    TimedOut,
    DoesNotCompile,
}

impl Scratch {
    /// Copies the work tree. Leaves equal files alone, so that cargo builds only what changed.
    pub(crate) fn copy() -> Result<Self, Failure> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let folder = target.join("mutants");
        let tree = folder.join("tree");
        let copy = || {
            fs::create_dir_all(&tree)?;
            let lock = File::create(folder.join("lock"))?;
            lock.try_lock()?;
            mirror(&root(), &tree)?;
            Ok(lock)
        };
        let lock =
            copy().map_err(|error: io::Error| Failure::new(format!("{}: {error}", folder.display())))?;
        Ok(Self {
            tree,
            folder,
            _lock: lock,
        })
    }

    /// Builds the test's binary and runs it.
    pub(crate) fn test(&self, test: &[String; 3]) -> Result<Outcome, Failure> {
        // A file, because a process that survives the tests would keep a pipe open.
        let path = self.folder.join("output");
        let run = |limit, args: &[&str], errors| -> io::Result<_> {
            let mut command = self.cargo_test(test, limit);
            command.args(args).stderr(errors).stdout(File::create(&path)?);
            let code = command.status()?.code();
            Ok((code, String::from_utf8_lossy(&fs::read(&path)?).into_owned()))
        };
        let cannot = |error| Failure::new(format!("`timeout cargo test` cannot be run: {error}"));
        let (built, _) = run(LIMITS[0], &["--no-run", "--quiet"], Stdio::inherit()).map_err(cannot)?;
        if built != Some(0) {
            return Ok(Outcome::DoesNotCompile);
        }
        let (code, output) = run(LIMITS[1], &["--", &test[2]], Stdio::null()).map_err(cannot)?;
        Ok(match code {
            Some(0) => Outcome::Passed(output.matches(" ... ok\n").count()),
            // `timeout` ends by its own signal, or reports it.
            None | Some(137) => Outcome::TimedOut,
            Some(_) => Outcome::Failed,
        })
    }

    fn cargo_test(&self, [package, binary, _]: &[String; 3], limit: &str) -> Command {
        let mut command = Command::new("env");
        // A background job of a shell ignores signals that some tests send. Warnings do not matter here; without line
        // tables a mutant links faster, without backtraces it fails faster.
        command.args(["--default-signal=HUP,INT,QUIT", "RUSTFLAGS=-Awarnings"]);
        command.args(["CARGO_PROFILE_DEV_DEBUG=0", "RUST_BACKTRACE=0"]);
        command.args(["timeout", "--signal=KILL", limit]);
        command.arg(cargo().get_program());
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

/// Makes `to` hold the same files as `from`, except build results and history.
fn mirror(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if name == "target" || name == ".git" {
            continue;
        }
        let copy = to.join(&name);
        if path.is_dir() {
            mirror(&path, &copy)?;
        } else if fs::read(&copy).ok() != Some(fs::read(&path)?) {
            fs::copy(&path, &copy)?;
        }
        names.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if names.contains(&entry.file_name()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
