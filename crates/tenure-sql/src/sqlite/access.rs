//! Finds what keeps this user from a lock file: which file or directory, its owner and its mode. The message says what
//! to do.
//!
//! Asks the system with `access`, which opens no file: closing a lock file would drop the POSIX locks of this process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use tenure_backend::{BackendError, Effect, Fault};

use super::names::display_path;
use super::sharing::{self, Need};
use super::siblings::with_siblings;

/// Number of checks of an empty file, with a pause of 5 ms after each. A process that creates a file sets its mode right
/// after the creation. Until then, the umask may deny other users the file.
const MAX_CHECKS: u32 = 40;

/// What this process wants to do with a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// List the locks.
    Read,
    /// Take, renew and free locks.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permission {
    /// Also if the system cannot tell.
    Granted,
    Denied,
    /// The file system allows no writes.
    ReadOnlyFileSystem,
    Missing,
}

/// Refuses a lock file that this user cannot use with this intent. A file that does not exist is not refused if this user
/// can create it.
pub(super) fn check(path: &Path, intent: Intent) -> Result<(), BackendError> {
    match denial(path, intent) {
        Some((fault, message)) => Err(BackendError::new(fault, Effect::None, message)),
        None => Ok(()),
    }
}

/// Returns why this user cannot write the lock file, and what to do. `None` if no reason is found.
pub(super) fn obstacle(path: &Path) -> Option<(Fault, String)> {
    denial(path, Intent::Write).or_else(|| sticky_denial(path))
}

fn denial(path: &Path, intent: Intent) -> Option<(Fault, String)> {
    let path = &*std::path::absolute(path).ok()?;
    let directory = path.parent()?;
    for file in with_siblings(path) {
        let permission = match access_to_file(&file, intent) {
            // SQLite must be able to create the file.
            Permission::Missing if intent == Intent::Write => {
                match access(directory, Access::WRITE_OK | Access::EXEC_OK) {
                    Permission::Denied => {
                        return Some(denied(sharing::directory(directory, Need::Create(&file))?));
                    }
                    other => other,
                }
            }
            other => other,
        };
        match permission {
            Permission::Granted | Permission::Missing => {}
            Permission::ReadOnlyFileSystem => return Some(read_only(&file)),
            Permission::Denied => {
                let text = match closed_directory(directory) {
                    Some(closed) => sharing::directory(closed, Need::Enter),
                    None => sharing::file(path, &file, intent == Intent::Write),
                };
                return Some(denied(text?));
            }
        }
    }
    None
}

fn denied(message: String) -> (Fault, String) {
    (Fault::Denied, message)
}

fn read_only(file: &Path) -> (Fault, String) {
    let file = display_path(file);
    let message = format!("{file} is on a read-only file system: choose a lock file on another one");
    (Fault::Store, message)
}

/// The first directory of the path that this user cannot enter.
fn closed_directory(directory: &Path) -> Option<&Path> {
    let mut above: Vec<&Path> = directory.ancestors().collect();
    above.reverse();
    let is_closed = |above: &&Path| access(above, Access::EXEC_OK) == Permission::Denied;
    above.into_iter().find(is_closed)
}

/// Access to a file that another process may be creating.
fn access_to_file(file: &Path, intent: Intent) -> Permission {
    let need = match intent {
        Intent::Read => Access::READ_OK,
        Intent::Write => Access::READ_OK | Access::WRITE_OK,
    };
    let is_new = || fs::metadata(file).is_ok_and(|file| file.len() == 0);
    let mut checks_left = MAX_CHECKS;
    loop {
        match access(file, need) {
            Permission::Denied if checks_left > 0 && is_new() => {
                checks_left -= 1;
                thread::sleep(Duration::from_millis(5));
            }
            permission => return permission,
        }
    }
}

fn access(path: &Path, need: Access) -> Permission {
    // Without `EACCESS`, the system would check the user who started a set-user-ID program.
    match accessat(CWD, path, need, AtFlags::EACCESS) {
        Err(Errno::ACCESS) => Permission::Denied,
        Err(Errno::ROFS) => Permission::ReadOnlyFileSystem,
        Err(Errno::NOENT | Errno::NOTDIR) => Permission::Missing,
        Ok(()) | Err(_) => Permission::Granted,
    }
}

/// Finds a file of another user in a directory with the sticky bit. SQLite opens `-wal` and `-shm` with `O_CREAT`, and
/// Linux then refuses a file of another user, whatever its mode, if `fs.protected_regular` is set.
fn sticky_denial(path: &Path) -> Option<(Fault, String)> {
    let directory = path.parent()?;
    let level = fs::read_to_string("/proc/sys/fs/protected_regular").ok()?;
    let level: u32 = level.trim().parse().ok()?;
    let there = fs::metadata(directory).ok()?;
    let user = rustix::process::geteuid().as_raw();
    let is_refused = |file: &&std::path::PathBuf| {
        let owner = fs::metadata(file).map(|file| file.uid());
        owner.is_ok_and(|owner| ![user, there.uid()].contains(&owner))
    };
    let [_, log, index] = with_siblings(path);
    let refused = [&log, &index].into_iter().find(|file| is_refused(file))?;
    protects_files(there.mode(), level).then(|| {
        denied(format!(
            "{} belongs to another user, and the sticky bit of {} (mode {:04o}) lets each user open only files of \
             their own for SQLite (fs.protected_regular = {level}): choose a directory without that bit",
            display_path(refused),
            display_path(directory),
            there.mode() & 0o7777
        ))
    })
}

/// Returns whether Linux protects the files in a directory of this mode at this level of `fs.protected_regular`.
fn protects_files(mode: u32, level: u32) -> bool {
    let is_shared = (level >= 1 && mode & 0o002 != 0) || (level >= 2 && mode & 0o020 != 0);
    mode & 0o1000 != 0 && is_shared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sticky_directories_protect_files_by_level() {
        for (mode, level, protects) in [
            (0o1777, 0, false),
            (0o1777, 1, true),
            (0o3770, 1, false),
            (0o3770, 2, true),
            (0o2770, 2, false),
            (0o1755, 2, false),
        ] {
            assert_eq!(protects_files(mode, level), protects, "{mode:04o}, {level}");
        }
    }
}
