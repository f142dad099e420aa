//! A copy of the workspace in which mutants are planted, with build results that stay for the next time.
//! Not here: what is planted and run in it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::files::below;
use crate::process::{Failure, cargo, output, root};

/// A folder that has what the work tree has, and its own target folder beside it.
#[derive(Debug)]
pub(crate) struct WorkCopy {
    pub(crate) tree: PathBuf,
    pub(crate) target: PathBuf,
    /// Locked for as long as this copy is used.
    _used: File,
}

/// Files that a mutant has changed; given back when this is dropped, unless they are kept.
#[derive(Debug)]
pub(crate) struct Planted {
    originals: Vec<(PathBuf, String)>,
    keep: bool,
}

impl WorkCopy {
    /// Copies what git knows or would know of the work tree, into copy number `number`.
    ///
    /// Files that are the same already are left alone, so that little is built again.
    pub(crate) fn of_work_tree(number: usize) -> Result<Self, Failure> {
        let copy = Self::at(&target_directory()?.join("mutants").join(number.to_string()))?;
        copy.follow(&root(), &listed()?)?;
        Ok(copy)
    }

    /// Another copy, of this one: the work tree may have changed meanwhile.
    pub(crate) fn another(&self, number: usize) -> Result<Self, Failure> {
        let place = self
            .target
            .parent()
            .and_then(Path::parent)
            .unwrap_or(&self.target);
        let copy = Self::at(&place.join(number.to_string()))?;
        copy.follow(&self.tree, &below(&self.tree)?)?;
        Ok(copy)
    }

    fn at(place: &Path) -> Result<Self, Failure> {
        let tree = place.join("tree");
        fs::create_dir_all(&tree).map_err(|error| cannot(&tree, &error))?;
        let path = place.join("used");
        let used = File::create(&path).map_err(|error| cannot(&path, &error))?;
        if used.try_lock().is_err() {
            return Err(Failure::new(format!(
                "mutants: {} is in use by another run",
                place.display()
            )));
        }
        Ok(WorkCopy {
            tree,
            target: place.join("target"),
            _used: used,
        })
    }

    fn follow(&self, from: &Path, files: &BTreeSet<PathBuf>) -> Result<(), Failure> {
        let done = || -> io::Result<()> {
            for file in files {
                copy_if_other(&from.join(file), &self.tree.join(file))?;
            }
            Ok(())
        };
        done().map_err(|error| cannot(&self.tree, &error))?;
        for file in below(&self.tree)?.difference(files) {
            let stale = self.tree.join(file);
            fs::remove_file(&stale).map_err(|error| cannot(&stale, &error))?;
        }
        Ok(())
    }

    /// Writes the files of a mutant, and remembers what they were.
    pub(crate) fn plant(&self, files: Vec<(&'static str, String)>, keep: bool) -> Result<Planted, Failure> {
        let mut planted = Planted {
            originals: Vec::new(),
            keep,
        };
        for (file, text) in files {
            let path = self.tree.join(file);
            let original = fs::read_to_string(&path).map_err(|error| cannot(&path, &error))?;
            planted.originals.push((path.clone(), original));
            fs::write(&path, text).map_err(|error| cannot(&path, &error))?;
        }
        Ok(planted)
    }

    /// The cargo of this copy.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = cargo();
        command
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            // Nobody debugs a mutant: without line tables it links faster, without traces it fails faster.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("RUST_BACKTRACE", "0");
        command
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for (path, original) in &self.originals {
            if let Err(error) = fs::write(path, original) {
                eprintln!("mutants: {} keeps its mutant: {error}", path.display());
            }
        }
    }
}

/// Where cargo builds what is in the work tree.
fn target_directory() -> Result<PathBuf, Failure> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps"]);
    let metadata: Metadata = serde_json::from_str(&output(command)?)
        .map_err(|error| Failure::new(format!("cargo metadata cannot be read: {error}")))?;
    Ok(metadata.target_directory)
}

/// The files of the work tree that are tracked, or are not and not ignored either.
fn listed() -> Result<BTreeSet<PathBuf>, Failure> {
    let mut git = Command::new("git");
    git.current_dir(root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let files = output(git)?;
    let there = |file: &PathBuf| root().join(file).is_file();
    let files = files.split_terminator('\0').map(PathBuf::from);
    Ok(files.filter(there).collect())
}

/// Copies contents and permissions, if the contents differ.
fn copy_if_other(from: &Path, to: &Path) -> io::Result<()> {
    let ours = fs::read(from)?;
    if fs::read(to).is_ok_and(|theirs| theirs == ours) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).map(drop)
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!("mutants: {}: {error}", path.display()))
}
