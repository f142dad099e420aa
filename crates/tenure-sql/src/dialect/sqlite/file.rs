//! The lock file as a file: that it may be used at all, how it is made, and whether it is still the same one.
//! Nothing here opens a file that may be open in this process: closing it would drop the locks SQLite holds on it.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tenure_backend::{BackendError, Effect, Fault};

use super::file_system;
use crate::display::display_path;

/// The device and inode of whatever is at a path; `None` if nothing is.
///
/// It does not ask for the times: a kernel that knows somebody has read them gives the next write a time of its
/// own, and the disk then has more to do for each commit.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn inode(path: &Path) -> Option<(u64, u64)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

    let status = statx(CWD, path, AtFlags::empty(), StatxFlags::INO).ok()?;
    Some((
        makedev(status.stx_dev_major, status.stx_dev_minor),
        status.stx_ino,
    ))
}

/// The device and inode of whatever is at a path; `None` if nothing is.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn inode(path: &Path) -> Option<(u64, u64)> {
    let status = rustix::fs::stat(path).ok()?;
    Some((status.st_dev as u64, status.st_ino as u64))
}

/// Whether a mount begins at the path: for a file, that it was mounted by itself.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_mounted(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        .is_ok_and(|status| status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Whether a mount begins at the path: not known here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_mounted(_: &Path) -> bool {
    false
}

/// A file beside the database, such as its `-wal`.
pub(super) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The permission bits of a file.
pub(super) fn mode(path: &Path) -> Option<u32> {
    Some(fs::metadata(path).ok()?.mode() & 0o7777)
}

/// The user to whom a file belongs.
pub(super) fn owner(path: &Path) -> Option<u32> {
    Some(fs::metadata(path).ok()?.uid())
}

/// Sets the permission bits, whatever the umask.
pub(super) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Which file was opened, so that another one in its place is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    main: Option<(u64, u64)>,
    wal: Option<(u64, u64)>,
    shm: Option<(u64, u64)>,
}

impl Identity {
    /// The files at the paths of a database, its `-wal` and its `-shm`. The two last as long as anybody has the
    /// database open; whoever finds one of them missing makes another, and shares no lock with those of the old one.
    pub(super) fn of(path: &Path, wal: &Path, shm: &Path) -> Self {
        Identity {
            main: inode(path),
            wal: inode(wal),
            shm: inode(shm),
        }
    }
}

/// The longest path that SQLite opens, with room for what it appends.
const MAX_PATH_BYTES: usize = 500;

/// The path without links and relative parts, so that a changed working directory does not matter, and SQLite's
/// files beside it are found where it has them.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, BackendError> {
    if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(refused(path, "names no file", "name a file, such as locks.db"));
    }
    let real = canonicalize(path)?;
    let length = real.as_os_str().len();
    if length > MAX_PATH_BYTES {
        let why = format!("has too long a path ({length} bytes, SQLite takes {MAX_PATH_BYTES})");
        return Err(refused(path, &why, "choose a shorter one"));
    }
    Ok(real)
}

fn canonicalize(path: &Path) -> Result<PathBuf, BackendError> {
    let error = match fs::canonicalize(path) {
        Ok(real) => return Ok(real),
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::NotFound {
        return Err(failed(path, error));
    }
    if path.is_symlink() {
        let then = "make what it leads to, or remove the link";
        return Err(refused(path, "is a link to nothing", then));
    }
    let absolute = std::path::absolute(path).map_err(|error| failed(path, error))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(refused(path, "names no file", "name a file, such as locks.db"));
    };
    match fs::canonicalize(parent) {
        Ok(parent) => Ok(parent.join(name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = "lies in a directory that does not exist";
            Err(refused(path, why, "make the directory first"))
        }
        Err(error) => Err(failed(path, error)),
    }
}

/// What lies at the path before SQLite opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// An empty file: ours to fill.
    Empty,
    /// Something that only SQLite can judge.
    NonEmpty,
}

/// One thread of this process at a time looks for a file and makes it: closing a file that was just made must not
/// drop the locks of a thread that found it at once.
static CREATION: Mutex<()> = Mutex::new(());

/// Refuses what is no place for a lock file, and makes the file if there is none.
pub(super) fn prepare(path: &Path) -> Result<Contents, BackendError> {
    let _alone = CREATION.lock();
    let directory = path.parent().unwrap_or(Path::new("/"));
    if let Some(name) = file_system::network_kind(directory) {
        let why =
            format!("is on a network file system ({name}), where locks of several machines do not exclude");
        let then = "choose a file on a local disk, or a store with a server";
        return Err(refused(path, &why, then));
    }
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(refused(path, "is a directory", "name a file in it")),
        Ok(there) if !there.is_file() => Err(refused(path, "is no regular file", "choose another file")),
        Ok(there) if there.nlink() > 1 => Err(hard_linked(path, there.nlink())),
        Ok(_) if is_mounted(path) => {
            let why = "is mounted by itself, so SQLite's files beside it are not those that others use";
            Err(refused(path, why, "mount its directory instead"))
        }
        Ok(there) if there.len() == 0 => Ok(Contents::Empty),
        Ok(_) => Ok(Contents::NonEmpty),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path),
        Err(error) => Err(failed(path, error)),
    }
}

/// A file with several names: under each SQLite would keep a log of its own, and one lock would have a holder in each.
///
/// Looking at it when it is opened is enough: whoever comes by a name that is given to it later finds two.
fn hard_linked(path: &Path, count: u64) -> BackendError {
    let why =
        format!("has {count} names (hard links), and a lock taken by one of them is not seen by the other");
    refused(path, &why, "use one of them and delete the others")
}

/// Makes an empty file for this user alone.
fn create(path: &Path) -> Result<Contents, BackendError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(path) {
        Ok(made) => {
            drop(made);
            set_mode(path, 0o600).map_err(|error| failed(path, error))?;
            sync_directory(path);
            Ok(Contents::Empty)
        }
        // Another process was quicker. If it has filled the file already, that shows when the tables are made.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Contents::Empty),
        Err(error) => Err(failed(path, error)),
    }
}

/// Writes the directory to the disk: a name that the power takes away takes the tokens with it.
fn sync_directory(path: &Path) {
    let directory = path.parent().map(fs::File::open);
    if let Some(Ok(directory)) = directory {
        // A file system that cannot do it keeps names in its own way.
        let _ = directory.sync_all();
    }
}

/// Whose lock file it is that cannot be used, why, and what to do.
pub(super) fn refused(path: &Path, why: &str, then: &str) -> BackendError {
    let message = format!("the lock file {} {why}: {then}", display_path(path));
    BackendError::new(Fault::Store, Effect::None, message)
}

fn failed(path: &Path, error: io::Error) -> BackendError {
    let file = display_path(path);
    let store = |message: String| (Fault::Store, message);
    let (fault, message) = match error.kind() {
        io::ErrorKind::PermissionDenied => (
            Fault::Denied,
            format!(
                "this user may not use the lock file {file}: give it access to file and directory, or choose another file"
            ),
        ),
        io::ErrorKind::ReadOnlyFilesystem => store(format!(
            "the lock file {file} is on a read-only file system: choose another file"
        )),
        io::ErrorKind::InvalidFilename => store(format!(
            "the lock file {file} has too long a name: choose a shorter one"
        )),
        io::ErrorKind::NotADirectory => store(format!(
            "the lock file {file} lies in something that is no directory: choose another place"
        )),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => store(format!(
            "the disk of the lock file {file} is full: free some space"
        )),
        _ => store(format!(
            "the lock file {file} cannot be used: see the cause beneath, or choose another file"
        )),
    };
    BackendError::because(fault, Effect::None, message, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_mounted_is_told_from_what_is_not() {
        let here = tempfile::NamedTempFile::new().expect("a file for the test");
        assert!(!is_mounted(here.path()));
        assert!(is_mounted(Path::new("/proc")));
    }
}
