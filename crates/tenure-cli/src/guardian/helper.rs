//! Names of `tenure`'s two helper processes, the guardian and the stub, and how to start one.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, io};

/// Name (`argv[0]`) of the guardian process.
pub(super) const GUARDIAN: &str = "tenure-guardian";
/// Name (`argv[0]`) of the stub, the process that becomes the command.
pub(super) const STUB: &str = "tenure-stub";

/// Returns the path of the running binary, to be executed again.
///
/// On Linux the path leads to the running file, even if another version has been installed over it.
///
/// # Errors
/// Outside of Linux, if the system does not know the path.
pub fn own_binary() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        Ok(PathBuf::from("/proc/self/exe"))
    } else {
        env::current_exe()
    }
}

/// Prepares a helper process: named `part`, in a process group of its own, with `socket` as standard input.
pub(super) fn helper(binary: &Path, part: &str, socket: OwnedFd) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(binary);
    command.arg0(part).process_group(0).stdin(socket);
    command
}

/// Names the binary in the error of its start, and says what to do if /proc is missing. Leaves errors without a file, such
/// as too many processes, as they are.
pub(super) fn start_error(binary: &Path, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    let help = if binary.starts_with("/proc") {
        ": mount /proc"
    } else {
        ""
    };
    io::Error::new(error.kind(), format!("{} is not there{help}", binary.display()))
}
