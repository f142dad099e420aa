//! The files that SQLite keeps beside a lock file.

use std::path::{Path, PathBuf};

/// Path of a file that SQLite keeps beside the database, such as `-wal`.
pub(super) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The lock file, its `-wal` and its `-shm`.
pub(super) fn with_siblings(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|suffix| sibling(path, suffix))
}
