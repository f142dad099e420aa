//! Lists the files below a folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// All files below a folder, by path relative to the folder, except those in folders `target` and `.git`.
pub(crate) fn below(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let (mut files, mut folders) = (BTreeSet::new(), vec![PathBuf::new()]);
    while let Some(name) = folders.pop() {
        for entry in fs::read_dir(folder.join(&name))? {
            let entry = entry?;
            let inner = name.join(entry.file_name());
            if !entry.file_type()?.is_dir() {
                files.insert(inner);
            } else if !inner.ends_with("target") && !inner.ends_with(".git") {
                folders.push(inner);
            }
        }
    }
    Ok(files)
}
