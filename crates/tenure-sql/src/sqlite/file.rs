//! The lock file as a file: checks its path and type, creates it, and detects its replacement.
//!
//! No function here opens an existing lock file, because closing it would drop the POSIX locks that SQLite holds on
//! it in this process.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::io::Errno;
use tenure_backend::{BackendError, Effect, Fault};

use super::names::display_path;
use super::{access, file_system};

/// Device and inode of the file at a path, or `None` if there is no file.
///
/// Does not read the timestamps: after they are read, the kernel gives the next write a new timestamp, which makes
/// each commit slower.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn inode(path: &Path) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

    match statx(CWD, path, AtFlags::empty(), StatxFlags::INO) {
        Ok(status) => {
            let device = makedev(status.stx_dev_major, status.stx_dev_minor);
            Ok(Some((device, status.stx_ino)))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Device and inode of the file at a path, or `None` if there is no file.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn inode(path: &Path) -> io::Result<Option<(u64, u64)>> {
    match rustix::fs::stat(path) {
        Ok(status) => Ok(Some((status.st_dev as u64, status.st_ino as u64))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the path is a mount point. A file is one too if another file was mounted over it.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_mounted(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    statx(CWD, path, AtFlags::empty(), StatxFlags::empty())
        .is_ok_and(|status| status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Returns `false`, because this system does not report whether the path is a mount point.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_mounted(_: &Path) -> bool {
    false
}

pub(super) fn mode(path: &Path) -> Option<u32> {
    Some(fs::metadata(path).ok()?.mode() & 0o7777)
}

pub(super) fn owner(path: &Path) -> Option<u32> {
    Some(fs::metadata(path).ok()?.uid())
}

/// Sets the permission bits of a file; the umask does not apply.
pub(super) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// The inodes of the lock file and its `-wal` and `-shm`, to detect that one was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    main: Option<(u64, u64)>,
    wal: Option<(u64, u64)>,
    shm: Option<(u64, u64)>,
}

impl Identity {
    /// The identity of the files at these paths. `-wal` and `-shm` exist as long as any process has the database
    /// open. If one of them is deleted, the next process that opens the database creates another, and then shares no
    /// lock with the processes that use the old one.
    ///
    /// Fails if the system cannot look one of them up. This does not mean that it was replaced, so ask again later.
    pub(super) fn of(path: &Path, wal: &Path, shm: &Path) -> Result<Self, BackendError> {
        let inode = |file: &Path| {
            inode(file).map_err(|error| {
                let message = format!(
                    "the lock file {} cannot be looked up: see the cause below",
                    display_path(file)
                );
                BackendError::because(Fault::Unavailable, Effect::None, message, error)
            })
        };
        Ok(Identity {
            main: inode(path)?,
            wal: inode(wal)?,
            shm: inode(shm)?,
        })
    }
}

/// Maximum length of a path in bytes. SQLite accepts 504 bytes, to which it appends suffixes such as `-wal`.
const MAX_PATH_BYTES: usize = 500;

/// Resolves links and relative parts of the path, so that changes of the working directory do not matter, and `-wal`
/// and `-shm` are found where SQLite creates them.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, BackendError> {
    if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(refused(path, "names no file", "name a file, such as locks.db"));
    }
    let real = canonicalize(path)?;
    let length = real.as_os_str().len();
    if length > MAX_PATH_BYTES {
        let why = format!("has too long a path ({length} bytes, of at most {MAX_PATH_BYTES})");
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

/// Whether the file has contents before SQLite opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// An empty file, in which the store creates the tables.
    Empty,
    /// A file with contents, which the store checks with SQLite.
    NonEmpty,
}

/// Serializes the creation of files in this process. Otherwise, a thread that closes the file it has just created
/// would drop the POSIX locks of a thread that has opened it meanwhile.
static CREATION: Mutex<()> = Mutex::new(());

/// Refuses a path that cannot be used for a lock file. If the file does not exist, creates it with this mode.
pub(super) fn prepare(path: &Path, mode: u32) -> Result<Contents, BackendError> {
    let _alone = CREATION.lock();
    let directory = path.parent().unwrap_or(Path::new("/"));
    let network = file_system::network_kind(directory).map_err(|error| failed(path, error))?;
    if let Some(name) = network {
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
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(path, mode),
        Err(error) => Err(failed(path, error)),
    }
}

/// Error for a file with several names. SQLite would keep a separate log for each name, so one lock could have a
/// holder under each.
///
/// The names are counted only when a file is opened. If a name is added later, a process that opens the file by that
/// name is refused.
fn hard_linked(path: &Path, count: u64) -> BackendError {
    let why =
        format!("has {count} names (hard links), and a lock taken by one of them is not seen by the other");
    refused(path, &why, "use one of them and delete the others")
}

/// Creates an empty file with this mode.
fn create(path: &Path, mode: u32) -> Result<Contents, BackendError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    match options.open(path) {
        Ok(made) => {
            drop(made);
            set_mode(path, mode).map_err(|error| failed(path, error))?;
            sync_directory(path);
            Ok(Contents::Empty)
        }
        // Another process was quicker. `create_tables` checks whether it has already created the tables.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Contents::Empty),
        Err(error) => Err(failed(path, error)),
    }
}

/// Syncs the directory, so that a power failure cannot remove the new file's name, and its tokens with it.
fn sync_directory(path: &Path) {
    let directory = path.parent().map(fs::File::open);
    if let Some(Ok(directory)) = directory {
        // Ignores an error, because some file systems cannot sync directories.
        let _ = directory.sync_all();
    }
}

/// Error for a lock file that cannot be used: `why`, and what to do `then`.
pub(super) fn refused(path: &Path, why: &str, then: &str) -> BackendError {
    let message = format!("the lock file {} {why}: {then}", display_path(path));
    BackendError::new(Fault::Store, Effect::None, message)
}

/// Converts an I/O error on the lock file into a message that says what to do.
fn failed(path: &Path, error: io::Error) -> BackendError {
    let file = display_path(path);
    let store = |message: String| (Fault::Store, message);
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied;
    // Says more than the system's error.
    if let Some((fault, message)) = access::obstacle(path).filter(|_| is_denied) {
        return BackendError::new(fault, Effect::None, message);
    }
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
        io::ErrorKind::NotFound if path.is_relative() && std::env::current_dir().is_err() => store(format!(
            "the lock file {file} cannot be used: the current directory has been removed. Change to another, or write an \
             absolute path"
        )),
        _ => store(format!(
            "the lock file {file} cannot be used: see the cause below, or choose another file"
        )),
    };
    BackendError::because(fault, Effect::None, message, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn mount_points_are_recognized() {
        let here = tempfile::NamedTempFile::new().expect("a file for the test");
        assert!(!is_mounted(here.path()));
        assert!(is_mounted(Path::new("/proc")));
    }
}
