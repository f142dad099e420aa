//! The files below a folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::process::Failure;

/// The files below a folder, named from there.
pub(crate) fn below(folder: &Path) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut found = Vec::new();
    find(folder, &mut found)
        .map_err(|error| Failure::new(format!("{} cannot be read: {error}", folder.display())))?;
    let relative = |path: PathBuf| path.strip_prefix(folder).map(Path::to_path_buf).ok();
    Ok(found.into_iter().filter_map(relative).collect())
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}
