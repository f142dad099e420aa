//! The Rust files of the workspace.
//! Not here: what is right or wrong in them.

use std::fs;
use std::path::{Path, PathBuf};

use super::finding::Finding;
use super::scrub::scrub;
use crate::process::Failure;

/// One file: its place below the root, its text, and its code alone.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The text with comments, strings and characters blanked, line for line.
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            path: path.into(),
            code: scrub(&text),
            text,
        }
    }

    /// The folders and the file's name without `.rs`.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let folders = self.path.parent().into_iter().flat_map(Path::iter);
        folders
            .chain(self.path.file_stem())
            .filter_map(|name| name.to_str())
    }

    /// The lines of code, counted from 1.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.code.lines())
    }

    pub(crate) fn finding(
        &self,
        line: usize,
        what: impl Into<String>,
        instead: impl Into<String>,
    ) -> Finding {
        Finding {
            file: self.path.clone(),
            line,
            what: what.into(),
            instead: instead.into(),
        }
    }
}

/// Reads every `.rs` file of the workspace.
pub(crate) fn read_all(root: &Path) -> Result<Vec<Source>, Failure> {
    let mut paths = Vec::new();
    for folder in ["crates", "examples", "interop", "xtask"] {
        find(&root.join(folder), &mut paths)?;
    }
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).map_err(|error| cannot_read(&path, error))?;
        Ok(Source::new(path.strip_prefix(root).unwrap_or(&path), text))
    };
    paths.into_iter().map(read).collect()
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).map_err(|error| cannot_read(folder, error))? {
        let path = entry.map_err(|error| cannot_read(folder, error))?.path();
        if path.is_dir() && !path.ends_with("target") {
            find(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn cannot_read(path: &Path, error: std::io::Error) -> Failure {
    Failure::new(format!("{} cannot be read: {error}", path.display()))
}
